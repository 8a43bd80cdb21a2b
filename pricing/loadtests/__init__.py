"""Readers of load-test reports, one per tool: each gives the own format, which `own.parse_load_test` checks."""
