"""Proof of the audit log: every link follows from the one before it, every entry is unchanged since it was linked.

Plain SQL on a given connection, so that a live database and a restored one are proven alike.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from psycopg import Connection

Anchor = tuple[int, str]
MOST_FAULTS = 100
LINKS = """
SELECT l.ordinal, l.entry_id, l.payload, l.previous, l.digest, CASE WHEN e.id IS NOT NULL THEN jsonb_build_object(
           'id', e.id, 'at', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'actor', e.actor,
           'action', e.action, 'subject', e.subject, 'detail', e.detail, 'transaction', e.transaction)::text END
FROM tenancy_auditlink l LEFT JOIN tenancy_auditentry e ON e.id = l.entry_id ORDER BY l.ordinal"""
UNLINKED = """
SELECT e.id FROM tenancy_auditentry e LEFT JOIN tenancy_auditlink l ON l.entry_id = e.id
WHERE l.entry_id IS NULL ORDER BY e.id LIMIT %s"""


@dataclass
class ChainProof:
    """Result of a proof: the last link, its faults and the number of anchors; `ordinal` 0 is an empty log."""

    ordinal: int = 0
    digest: str = ""
    faults: list[str] = field(default_factory=list)
    anchors: int = 0


def audit_chain_prove(ledger: Connection[Any], anchors: Iterable[Anchor] = ()) -> ChainProof:
    """Recompute the whole chain and return its proof; given anchors, also check that their links are unchanged."""
    proof = ChainProof()
    noted = sorted(set(anchors))
    wanted, found = {ordinal for ordinal, _ in noted}, dict[int, str]()
    # a server-side cursor: the log may have millions of entries
    with ledger.transaction(), ledger.cursor(name="audit_chain") as cursor:
        for ordinal, entry, payload, previous, digest, current in cursor.execute(LINKS):
            if len(proof.faults) < MOST_FAULTS:
                proof.faults += _faults(proof, ordinal, entry, payload, previous, digest, current)
            proof.ordinal, proof.digest = ordinal, digest
            if ordinal in wanted:
                found[ordinal] = digest
    with ledger.transaction():
        unlinked = ledger.execute(UNLINKED, [MOST_FAULTS]).fetchall()
    proof.faults += [f"entry {entry} is not in the chain" for (entry,) in unlinked]
    proof.anchors = len(noted)
    proof.faults += _first_difference(noted, found)
    return proof


def _first_difference(noted: list[Anchor], found: dict[int, str]) -> list[str]:
    """Return the first link that differs from its anchor. The change is at or before it, after the last link that agrees."""
    differs = [anchor for anchor in noted if found.get(anchor[0], "") != anchor[1]]
    if not differs:
        return []
    ordinal, digest = differs[0]
    text = f"link {ordinal} is {found.get(ordinal) or 'missing'}, the anchor says {digest}"
    agreeing = max((at for at, _ in noted if at < ordinal), default=0)
    if agreeing:
        text += f"; links up to {agreeing} are as they were anchored, the first change is in {agreeing + 1} to {ordinal}"
    more = len(differs) - 1
    return [text + (f"; {more} later anchors differ too" if more else "")]


def _faults(
    before: ChainProof, ordinal: int, entry: int, payload: str, previous: str, digest: str, current: str | None
) -> list[str]:
    checks = {
        f"link {before.ordinal + 1} is missing": ordinal == before.ordinal + 1,
        f"link {ordinal} does not follow from the one before it": previous == before.digest,
        f"link {ordinal} has a hash that is not its own": digest == sha256((previous + payload).encode()).hexdigest(),
        f"entry {entry} is not what it was when it was written": current is None
        or json.loads(current) == json.loads(payload),
        f"entry {entry} was removed": current is not None,
    }
    return [fault for fault, holds in checks.items() if not holds]
