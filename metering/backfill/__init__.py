"""Holds that nobody watched, pieced together from what kube-state-metrics left in Prometheus, and flagged as that."""
