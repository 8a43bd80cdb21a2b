"""Counting what was taken in, in the transaction that stores it."""

from typing import Any

from billing.usage.models import AcceptedRows


def accepted_note(cursor: Any, kind: AcceptedRows.Kind, rows: int) -> None:
    """Note that the calling transaction stored so many new rows of a kind."""
    if rows:
        cursor.execute("INSERT INTO usage_acceptedrows (kind, rows) VALUES (%s, %s)", [kind.value, rows])
