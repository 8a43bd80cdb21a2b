"""Meter of Slurm's accounting: GpuAllocation records from what `sacct` prints.

Ask for `sacct --duplicates --allocations --json`, or with `--parsable2` for the columns of `sacct_text`. Without
`--duplicates` only the last run of a requeued job is shown, and the earlier runs vanish from the bill.
"""
