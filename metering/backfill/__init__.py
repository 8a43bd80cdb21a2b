"""Backfill of allocations that no agent watched, from kube-state-metrics' series in Prometheus, flagged as estimates."""
