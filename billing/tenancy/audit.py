"""Audit log of every change to money, prices and ownership, with its actor.

The database sets the time of an entry, and takes its actor from the session, where it is set here (`sql/stamp.sql`).
"""

from collections.abc import Iterable
from typing import Any, Final

from django.db import connection, transaction
from psycopg.types.json import Jsonb

from billing.runtime.bulk_copy import rows_copy
from billing.runtime.request_id import request_id
from billing.tenancy.actors import Actor
from billing.tenancy.models import AuditEntry

ENTRY: Final = """WITH session AS MATERIALIZED (SELECT set_config('suanpan.actor', %s, true) AS actor)
    INSERT INTO tenancy_auditentry (actor, action, subject, detail) SELECT actor, %s, %s, %s FROM session"""


def audit_record(*, actor: str, action: str, subject: str, detail: dict[str, Any] | None = None) -> None:
    """Append one entry, in the transaction of the change itself; `acting` in its detail identifies the actor.

    `request_id` names the request that it belongs to, if any.
    """
    entry: list[Any] = [str(actor[:200]), str(action), str(subject[:300]), Jsonb(_detail(actor, detail or {}))]
    with connection.cursor() as cursor:
        cursor.execute(ENTRY, entry)


def export_record(*, actor: str, what: str, detail: dict[str, Any] | None = None) -> None:
    """Record an export: a file, an archive, the rows of an export."""
    audit_record(actor=actor, action="export", subject=what, detail=detail)


def audit_record_each(*, actor: str, action: str, entries: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Append one entry for each subject with its detail, in the transaction of the changes themselves."""
    rows = ((actor[:200], action, subject[:300], Jsonb(_detail(actor, detail))) for subject, detail in entries)
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('suanpan.actor', %s, true)", [str(actor[:200])])
        rows_copy(AuditEntry, ("actor", "action", "subject", "detail"), rows)


def _detail(actor: str, detail: dict[str, Any]) -> dict[str, Any]:
    request = {"request_id": request_id()} if request_id() else {}
    acting = {"acting": actor.facts} if isinstance(actor, Actor) else {}
    return {**detail, **acting, **request}
