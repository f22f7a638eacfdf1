"""Rules from objects of the API server: MetricRules, ClusterMetricRules, ConfigMaps and annotations of HPAs."""
