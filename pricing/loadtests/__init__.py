"""Load-test reports -> load points: one reader per tool, each gives the own format, which `own.parse_load_test` checks."""
