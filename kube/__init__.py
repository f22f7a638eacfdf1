"""The Kubernetes code that both processes share, by role.

api         requests to the API server, its errors, discovery, lists, and decoding of objects
cache       watched objects in memory, and their labels' index
controller  leader election, the work queue, rate limits of writes, Events, logged errors
security    delegated authentication and authorization, TLS, certificates
serving     HTTPS servers: the listener with its limits on connections, health checks, probes, flags
web         read-only web pages
values      quantities, selectors, names, durations, and messages of validation
aio         tasks, one call for many callers, fair limits
process     the event loop, signals, the log, the command line, files

Metrics and scaling do not belong here. No other package of this repository is imported.
"""
