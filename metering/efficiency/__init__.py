"""Efficiency of training jobs: their own reports, checked against measurements of the devices' exporters."""
