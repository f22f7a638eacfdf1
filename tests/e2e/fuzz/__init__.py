"""Differential fuzz: kube-controller-manager and the autoscaler side by side on random HPAs, pods and metrics.

Every case exists twice, under the same names in two namespaces: kube-controller-manager scales the one by an HPA of
autoscaling/v2, the autoscaler the other by an HPA of milliscale.io/v1 with the same spec. A case goes through phases;
at the end of each both must have the same status, replicas and events.

    cases       random cases, made from a seed
    responses   random responses of the metrics APIs, good and bad
    server      the aggregated API server that sends them
    environment the cluster, the phases and the comparison
    allowed     the differences that docs/autoscaler.md lists, each with a predicate
"""
