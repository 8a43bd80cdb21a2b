"""ClickHouse begins to keep token records: those that PostgreSQL has stay there, and every key is looked up in both."""

from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.usage.epochs import ingest_lock_exclusive
from billing.usage.store.clickhouse import Servers
from billing.usage.store.sharded import shards_begin, tables_make


def token_store_begin(*, servers: Servers, actor: str) -> bool:
    """Make what tables are missing; gives whether records go there only now. To be run again after a replica was replaced.

    Raises StoreAwayError.
    """
    tables_make(servers)
    with transaction.atomic():
        ingest_lock_exclusive()
        begun = shards_begin(len(servers.shards))
        if begun:
            audit_record(actor=actor, action="token_store", subject="", detail={"shards": [*map(list, servers.shards)]})
    return begun
