"""Switch of token records to ClickHouse: records in PostgreSQL stay there, and every key is looked up in both."""

from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.usage.epochs import ingest_lock_exclusive
from billing.usage.store.clickhouse import Servers
from billing.usage.store.sharded import shards_begin, tables_make


def token_store_begin(*, servers: Servers, actor: str) -> bool:
    """Create missing tables in ClickHouse; return True if records go there from now on. Run again after replacing a replica.

    Raises StoreAwayError.
    """
    tables_make(servers)
    with transaction.atomic():
        ingest_lock_exclusive()
        begun = shards_begin(len(servers.shards))
        if begun:
            audit_record(actor=actor, action="token_store", subject="", detail={"shards": [*map(list, servers.shards)]})
    return begun
