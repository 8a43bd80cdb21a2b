"""Logs of gateways as a meter: lines of files, rows of exported tables -> TokenUsage, none lost and none twice.

    mapping.py        PURE: which field of a line contains what, and what is missing
    formats.py        PURE: the gateways that are known
    containers.py     PURE: bytes -> lines or rows: JSON lines, a JSON array, CSV, a dump of MySQL
    mysql_dump.py     PURE: the INSERT statements of such a dump
    files.py          a file under its names: rotated, truncated, compressed
    checkpoints.py    how far each file was read, and what could not be read, in one transaction with the spool
    reading.py        from a file, or a table in SQLite, to the spool
    following.py      all files, again and again
    command.py        `python -m metering tokens`

A reader that is killed at any moment goes on where its last transaction stands.
"""
