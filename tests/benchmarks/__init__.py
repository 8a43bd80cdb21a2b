"""Benchmarks: each number as a ratio to a raw limit of the same run. `make bench` prints the table."""
