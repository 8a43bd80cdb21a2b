"""State of dynamic resource allocation on disk: tables beside those of the pods, on the same connection.

A claim that was generated for a pod vanishes with it, and is read on another stream than the pod. So the content of a claim
is kept for each pod that it was ever reserved for, and a device is kept for ever. Instants are whole microseconds since
1970.
"""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum
from fractions import Fraction
from typing import Final

import msgspec

from metering.claims import Claim, ClaimedDevices, Device, Devices, Place
from metering.intervals import from_us, to_us
from metering.records import GpuAllocation
from metering.slice_capacity import SliceOffer

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS reservation (
    pod_uid TEXT NOT NULL, claim TEXT NOT NULL, version INTEGER NOT NULL, seen_us INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (pod_uid, claim)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reservation_claim ON reservation (claim);
CREATE TABLE IF NOT EXISTS device (
    driver TEXT NOT NULL, pool TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, facts BLOB NOT NULL,
    PRIMARY KEY (driver, pool, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS slice (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, list INTEGER NOT NULL, node TEXT NOT NULL, offer BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS slice_node ON slice (node);
CREATE TABLE IF NOT EXISTS claimant (pod_uid TEXT PRIMARY KEY, settled INTEGER NOT NULL, claimed BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claimant_settled ON claimant (settled);
CREATE TABLE IF NOT EXISTS claim_hold (
    claim_uid TEXT NOT NULL, pod_uid TEXT NOT NULL, start_us INTEGER NOT NULL, end_us INTEGER,
    PRIMARY KEY (claim_uid, pod_uid)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claim_hold_pod ON claim_hold (pod_uid);
CREATE TABLE IF NOT EXISTS piece (
    allocation_id TEXT PRIMARY KEY, pod_uid TEXT NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS piece_pod ON piece (pod_uid);
"""


class Settled(IntEnum):
    """Progress of a pod's claims: not known; known; known, and given back."""

    NOT = 0
    KNOWN = 1
    ENDED = 2


class ClaimedHold(msgspec.Struct, frozen=True):
    """Devices that a pod holds through claims. `base`: the pod's allocation without the fields that differ between parts."""

    base: GpuAllocation
    parts: tuple[ClaimedDevices, ...]


class Holder(msgspec.Struct, frozen=True):
    """Time for which a pod held a claim; `end` is None while it does."""

    claim: str
    pod: str
    start: datetime
    end: datetime | None


def _fraction(kind: type, text: str) -> Fraction:
    """Decode a share or a capacity, which is written numerator/denominator."""
    return Fraction(text)


_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_offer: Final = msgspec.json.Decoder(SliceOffer)
_claim: Final = msgspec.json.Decoder(Claim)
_device: Final = msgspec.json.Decoder(Device, dec_hook=_fraction)
_claimed: Final = msgspec.json.Decoder(ClaimedHold, dec_hook=_fraction)
_record: Final = msgspec.json.Decoder(GpuAllocation)


class ClaimStore:
    """Statements over the tables of claims; the caller opens and commits transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.executescript(SCHEMA)

    def age(self, kind: str) -> None:
        """Make all known claims or slices older than every version."""
        if kind in ("claims", "slices"):
            self.connection.execute(f"UPDATE {'reservation' if kind == 'claims' else 'slice'} SET version = -1")  # noqa: S608

    def put_reservations(self, claim: Claim, version: int, seen_at: datetime) -> None:
        """Keep a claim for each pod that it is reserved for; the latest version stays."""
        body = _encode(claim)
        self.connection.executemany(
            """INSERT INTO reservation VALUES (?, ?, ?, ?, ?) ON CONFLICT (pod_uid, claim) DO UPDATE
               SET version = excluded.version, body = excluded.body WHERE version < excluded.version""",
            [(uid, claim.metadata.name, version, to_us(seen_at), body) for uid in sorted(claim.pods)],
        )

    def reservations(self, pod_uid: str) -> dict[str, Claim]:
        """Return the claims that were ever reserved for a pod, by name."""
        rows = self.connection.execute("SELECT claim, body FROM reservation WHERE pod_uid = ?", (pod_uid,))
        return {name: _claim.decode(body) for name, body in rows.fetchall()}

    def others(self, pod_uid: str, namespace: str, name: str) -> list[tuple[str, Claim]]:
        """Return other pods for which a claim of that name was ever reserved, and its content then."""
        rows = self.connection.execute(
            "SELECT pod_uid, body FROM reservation WHERE claim = ? AND pod_uid <> ? ORDER BY pod_uid", (name, pod_uid)
        )
        found = [(uid, _claim.decode(body)) for uid, body in rows.fetchall()]
        return [(uid, claim) for uid, claim in found if claim.metadata.namespace == namespace]

    def put_slice(self, name: str, version: int, list_number: int, offer: SliceOffer) -> set[str]:
        """Write a slice unless a later version is known; return the nodes whose offer may have changed."""
        before = self.connection.execute("SELECT version, node FROM slice WHERE name = ?", (name,)).fetchone()
        if before and before[0] > version:
            return set()
        self.connection.execute(
            "INSERT OR REPLACE INTO slice VALUES (?, ?, ?, ?, ?)", (name, version, list_number, offer.node, _encode(offer))
        )
        return {offer.node} | ({before[1]} if before else set())

    def slice_gone(self, name: str) -> set[str]:
        """Delete a slice that vanished; return the nodes whose offer has changed."""
        rows = self.connection.execute("DELETE FROM slice WHERE name = ? RETURNING node", (name,)).fetchall()
        return {node for (node,) in rows}

    def absent_slices(self, list_number: int) -> set[str]:
        """Delete slices that a list did not contain; return the nodes whose offer has changed."""
        rows = self.connection.execute("DELETE FROM slice WHERE list < ? RETURNING node", (list_number,)).fetchall()
        return {node for (node,) in rows}

    def slices(self, node: str) -> list[SliceOffer]:
        """Return the offers of a node's present slices."""
        rows = self.connection.execute("SELECT offer FROM slice WHERE node = ?", (node,)).fetchall()
        return [_offer.decode(offer) for (offer,) in rows]

    def put_devices(self, devices: Devices, generation: int) -> None:
        """Keep devices as they are in a generation of their pool; the latest generation stays."""
        rows = [(*place, generation, _encode(device)) for place, device in devices.items()]
        self.connection.executemany(
            """INSERT INTO device VALUES (?, ?, ?, ?, ?) ON CONFLICT (driver, pool, name) DO UPDATE
               SET generation = excluded.generation, facts = excluded.facts WHERE generation <= excluded.generation""",
            rows,
        )

    def devices(self, places: Iterable[Place]) -> Devices:
        """Return those of the devices that are known."""
        found: dict[Place, Device] = {}
        for place in places:
            row = self.connection.execute(
                "SELECT facts FROM device WHERE driver = ? AND pool = ? AND name = ?", place
            ).fetchone()
            if row:
                found[place] = _device.decode(row[0])
        return found

    def add_claimant(self, pod_uid: str) -> None:
        """Note that a pod has claims whose content is not known yet."""
        self.connection.execute("INSERT OR IGNORE INTO claimant VALUES (?, ?, NULL)", (pod_uid, Settled.NOT))

    def unsettled(self) -> list[tuple[str, bool]]:
        """Return pods whose claims are not all known, or that ended since; with True for those whose claims are known."""
        rows = self.connection.execute(
            """SELECT pod_uid, settled FROM claimant JOIN pod ON uid = pod_uid
               WHERE settled = ? OR (settled = ? AND ended = 1) ORDER BY version, uid""",
            (Settled.NOT, Settled.KNOWN),
        )
        return [(uid, settled != Settled.NOT) for uid, settled in rows.fetchall()]

    def claimed(self, pod_uid: str) -> ClaimedHold | None:
        """Return the known devices that a pod holds through claims; None if there are none yet."""
        row = self.connection.execute("SELECT claimed FROM claimant WHERE pod_uid = ?", (pod_uid,)).fetchone()
        return _claimed.decode(row[0]) if row and row[0] is not None else None

    def put_claimed(self, pod_uid: str, claimed: ClaimedHold, *, whole: bool) -> None:
        """Keep the devices that a pod holds through claims since its allocation began; `whole`: these are all of them."""
        settled = Settled.KNOWN if whole else Settled.NOT
        self.connection.execute(
            "UPDATE claimant SET settled = ?, claimed = ? WHERE pod_uid = ?", (settled, _encode(claimed), pod_uid)
        )
        start = to_us(claimed.base.started_at)
        self.connection.executemany(
            "INSERT OR IGNORE INTO claim_hold VALUES (?, ?, ?, NULL)",
            [(claim, pod_uid, start) for claim in sorted({part.claim for part in claimed.parts})],
        )

    def end_holds(self, pod_uid: str, at: datetime) -> bool:
        """End a pod's hold of its claims, unless it ended before; return True if it had any."""
        ended = self.connection.execute(
            "UPDATE claim_hold SET end_us = max(start_us, ?) WHERE pod_uid = ? AND end_us IS NULL", (to_us(at), pod_uid)
        )
        self.connection.execute(
            "UPDATE claimant SET settled = ? WHERE pod_uid = ? AND settled = ?", (Settled.ENDED, pod_uid, Settled.KNOWN)
        )
        return bool(ended.rowcount)

    def disturb(self, pod_uid: str) -> None:
        """Mark a pod, and all that share a claim with it, as having news: their shares have changed."""
        self.connection.execute(
            """UPDATE pod SET dirty = 1 WHERE uid IN (
                   SELECT other.pod_uid FROM claim_hold own JOIN claim_hold other USING (claim_uid)
                   WHERE own.pod_uid = ?)""",
            (pod_uid,),
        )
        self.connection.execute("UPDATE pod SET dirty = 1 WHERE uid = ?", (pod_uid,))

    def holders(self, pod_uid: str) -> list[Holder]:
        """Return which pods held a pod's claims and when, itself included."""
        rows = self.connection.execute(
            """SELECT other.claim_uid, other.pod_uid, other.start_us, other.end_us
               FROM claim_hold own JOIN claim_hold other USING (claim_uid) WHERE own.pod_uid = ?""",
            (pod_uid,),
        )
        return [
            Holder(claim, pod, from_us(start), None if end is None else from_us(end))
            for claim, pod, start, end in rows.fetchall()
        ]

    def pieces(self, pod_uid: str) -> dict[str, GpuAllocation]:
        """Return the pieces of a pod's allocation as they were reported last, by allocation id."""
        rows = self.connection.execute("SELECT allocation_id, record FROM piece WHERE pod_uid = ?", (pod_uid,))
        return {name: _record.decode(record) for name, record in rows.fetchall()}

    def put_pieces(self, records: Iterable[GpuAllocation]) -> None:
        """Keep pieces as reported."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO piece VALUES (?, ?, ?)",
            [(item.allocation_id, item.pod_uid, _encode(item)) for item in records],
        )

    def forget(self, before: datetime) -> None:
        """Drop rows of pods that are not kept any more; holders of a claim stay while one of its pods is kept."""
        kept = "(SELECT uid FROM pod)"
        self.connection.execute(
            f"DELETE FROM reservation WHERE seen_us < ? AND pod_uid NOT IN {kept}", (to_us(before),)  # noqa: S608
        )
        self.connection.execute(f"DELETE FROM claimant WHERE pod_uid NOT IN {kept}")  # noqa: S608
        self.connection.execute(f"DELETE FROM piece WHERE pod_uid NOT IN {kept}")  # noqa: S608
        self.connection.execute(
            f"""DELETE FROM claim_hold WHERE claim_uid NOT IN (
                    SELECT claim_uid FROM claim_hold WHERE pod_uid IN {kept})"""  # noqa: S608
        )
