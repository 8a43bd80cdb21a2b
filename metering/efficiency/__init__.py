"""Efficiency of training jobs: what their own reports say, checked against what the devices' exporters measured."""
