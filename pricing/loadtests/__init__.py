"""Load-test reports -> load points. Every reader gives the own format, which `own.parse_load_test` checks."""
