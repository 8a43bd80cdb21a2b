"""Backups with proof: a dump, a manifest of the same snapshot, and a restore that is compared with it.

The dump is PostgreSQL's custom format, so that anybody can restore it with `pg_restore` alone. The manifest is
`FILE.json`: its hash, the rows of every table, totals per period and the heads of the document chains.
"""
