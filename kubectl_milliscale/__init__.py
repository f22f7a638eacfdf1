"""The kubectl plugin: `kubectl milliscale status|explain|replay|tune|check|migrate-keda`.

It runs on a user's machine. kubectl itself reads the cluster and forwards ports, so the plugin needs the user's rights
and no others. `status` is the plugin's own; the other commands are those of the autoscaler and the adapter, with the
autoscaler's pod, Prometheus and the rules found in the cluster.
"""
