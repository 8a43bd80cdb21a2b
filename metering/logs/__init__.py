"""Meter of gateways' logs: TokenUsage from lines of files and rows of exported tables, none lost and none twice.

    mapping.py        PURE: fields of a line by paths, and the requests whose counts are missing
    formats.py        PURE: the gateways that are known
    containers.py     PURE: bytes -> lines or rows: JSON lines, a JSON array, CSV, a dump of MySQL
    mysql_dump.py     PURE: the INSERT statements of such a dump
    files.py          a file under its names: rotated, truncated, compressed
    checkpoints.py    how far each file was read, and unreadable lines, in one transaction with the spool
    reading.py        from a file, or a table in SQLite, to the spool
    following.py      all files, again and again
    command.py        `python -m metering tokens`

A reader that is killed at any moment continues after its last transaction.
"""
