"""From KEDA's ScaledObjects to MetricRules and HorizontalPodAutoscalers, for the command migrate-keda.

manifests    reads the objects of KEDA from YAML
triggers     makes a metric of an HPA from a trigger, and the spec of its MetricRule
servers      collects the Prometheus servers of triggers, and how they authenticate
scaled       makes the objects for one ScaledObject

What cannot be moved is said, never guessed: an HPA without one of its triggers would scale otherwise.
"""
