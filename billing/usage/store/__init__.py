"""Token records, and nobody else reads or writes their tables (`tests/unit/test_token_store.py`).

| Module | Has |
|---|---|
| `sums` | tokens of any stretches of time, as of a close: everything that is rated |
| `records` | what is written, once per key; what is known of a key; the requests behind a line |
| `hours` | when, by whom and how much was used, by hour or day |
| `proofs` | the same counts in two places, and checksums |
| `sharded`, `clickhouse` | records that ClickHouse keeps where TOKEN_STORE says so; PostgreSQL says which of them count |
| `sharded_reads` | the same read by their time |
| `archived` | months whose records left, and what is kept of each record |
| `parts` | the part of a month, and how it goes as a whole |
| `rebuild` | a ledger of one table is put in parts |
| `dimensions` | numbers of source, consumer, model, site, provider and status |
| `columns`, `rows`, `wire`, `checks` | records as the store takes them |

Owners and prices are looked up of the sums, never here.
"""
