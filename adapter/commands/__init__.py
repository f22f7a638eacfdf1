"""The command line's rooms: flags, what they mean, and the commands beside `run`.

flags, ignored_flags   what can be given, with prometheus-adapter's flags that change nothing here
options                the flags as typed values
prometheus_auth        credentials for Prometheus
serve                  builds the running adapter of its parts
reload                 the rules file, read again when it changes
diagnosing             `check` and `explain`, with what `session` opens for them, printed by `printing`
kubernetes             the resources that every cluster has, for work without one
"""
