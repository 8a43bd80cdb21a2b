"""Proof of the audit log: every link follows from the one before it, every entry is as it was when it was linked.

Plain SQL on a connection that is handed in, so that a living database and a restored one are proven alike.
"""

import json
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
    """How far the chain reaches and what is wrong with it; `ordinal` 0 is an empty log."""

    ordinal: int = 0
    digest: str = ""
    faults: list[str] = field(default_factory=list)


def audit_chain_prove(ledger: Connection[Any], anchor: Anchor | None = None) -> ChainProof:
    """Recompute the whole chain; with an anchor noted earlier, also that its link still stands."""
    proof = ChainProof()
    anchored = ""
    with ledger.transaction(), ledger.cursor(name="audit_chain") as cursor:
        for ordinal, entry, payload, previous, digest, current in cursor.execute(LINKS):
            if len(proof.faults) < MOST_FAULTS:
                proof.faults += _faults(proof, ordinal, entry, payload, previous, digest, current)
            proof.ordinal, proof.digest = ordinal, digest
            if anchor and ordinal == anchor[0]:
                anchored = digest
    with ledger.transaction():
        unlinked = ledger.execute(UNLINKED, [MOST_FAULTS]).fetchall()
    proof.faults += [f"entry {entry} is not in the chain" for (entry,) in unlinked]
    if anchor and anchored != anchor[1]:
        proof.faults.append(f"link {anchor[0]} is {anchored or 'missing'}, the anchor says {anchor[1]}")
    return proof


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
