"""Store of token records: no other package reads or writes their tables (`tests/unit/test_token_store.py`).

| Module | Has |
|---|---|
| `sums` | tokens of any intervals, as of a close: everything that is rated |
| `records` | writes, once per key; lookups by key; the requests behind a line |
| `hours` | times, names and amounts of usage, by hour or day |
| `proofs` | comparison of counts stored twice, and checksums |
| `sharded`, `clickhouse` | records in ClickHouse if TOKEN_STORE is set; PostgreSQL decides which of them count |
| `sharded_reads` | reads of the same records by their time |
| `archived` | months whose records left, with the entry kept of each record |
| `parts` | the part (partition) of a month, and its removal as a whole |
| `rebuild` | move of a ledger of one table into parts |
| `dimensions` | numbers of source, consumer, model, site, provider and status |
| `columns`, `rows`, `wire`, `checks` | records in the form that the store writes |

Owners and prices are applied to the sums, never here.
"""
