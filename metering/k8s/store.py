"""What the agent knows, on disk: every hold, every node, and how far each stream was read.

One SQLite file with the spool, on one connection: what was learned, the version up to which it was learned and what has
to be reported about it are there together after a crash, or not at all. Instants are whole microseconds since 1970.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from metering.accelerators import NodeFacts
from metering.allocation import Ending
from metering.intervals import from_us, to_us
from metering.k8s.objects import PodFacts
from metering.observations import Observation, PodDeleted, PodMissing, PodSnapshot
from metering.records import GpuAllocation

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS stream (
    kind TEXT PRIMARY KEY, version TEXT, synced_us INTEGER, listed_us INTEGER, list INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pod (
    uid TEXT PRIMARY KEY, node TEXT NOT NULL, version INTEGER NOT NULL, first_version INTEGER NOT NULL,
    first_seen_us INTEGER NOT NULL, seen_us INTEGER NOT NULL, list INTEGER NOT NULL, ended INTEGER NOT NULL,
    gone_us INTEGER, dirty INTEGER NOT NULL, observed_us INTEGER NOT NULL, history BLOB NOT NULL, facts BLOB NOT NULL,
    records BLOB, ending BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pod_open ON pod (list) WHERE ended = 0;
CREATE INDEX IF NOT EXISTS pod_dirty ON pod (uid) WHERE dirty = 1;
CREATE INDEX IF NOT EXISTS pod_gone ON pod (gone_us) WHERE gone_us IS NOT NULL;
CREATE TABLE IF NOT EXISTS node (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, list INTEGER NOT NULL, present INTEGER NOT NULL, facts BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS capacity (
    node TEXT NOT NULL, resource TEXT NOT NULL, start_us INTEGER NOT NULL, until_us INTEGER, accelerator TEXT NOT NULL,
    quantity INTEGER NOT NULL, condition TEXT NOT NULL, dirty INTEGER NOT NULL, PRIMARY KEY (node, resource, start_us)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS capacity_open ON capacity (node) WHERE until_us IS NULL;
CREATE TABLE IF NOT EXISTS unwatched (start_us INTEGER PRIMARY KEY, end_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS watched_since (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), at_us INTEGER NOT NULL);
INSERT OR IGNORE INTO watched_since SELECT 1, listed_us FROM stream WHERE kind = 'pods' AND listed_us IS NOT NULL;
CREATE TABLE IF NOT EXISTS scan (
    at_us INTEGER PRIMARY KEY, watched INTEGER NOT NULL, scanned INTEGER NOT NULL, differing INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS note (
    kind TEXT NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL, since_us INTEGER NOT NULL, seen_us INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
) WITHOUT ROWID;
"""
NOTES_BEFORE: Final = """
CREATE TABLE IF NOT EXISTS problem (subject TEXT PRIMARY KEY, text TEXT NOT NULL, seen_us INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO note
    SELECT 'problem', substr(subject, 1, length(subject) - 9 * (subject GLOB '*, [0-9][0-9][0-9][0-9]-[0-9][0-9]')),
           max(text), min(seen_us), max(seen_us) FROM problem GROUP BY 2;
DROP TABLE problem;
DROP TABLE IF EXISTS unknown_resource;
"""
"""Earlier versions named the month (", 2026-10") at the end of a subject; the platform does now, in its own time zone. What
they noted of resources is noted again.
"""
MOST_PROBLEMS: Final = 99
"""The platform takes a hundred subjects of a report; the last says how many more there are."""
LATELY: Final = timedelta(days=31)
PROBLEM, UNKNOWN_RESOURCE = "problem", "unknown"


@dataclass(frozen=True, slots=True)
class PodRow:
    """What is known of one pod that was ever seen bound to a node."""

    uid: str
    node: str
    version: int
    first_version: int
    first_seen: datetime
    seen: datetime
    ended: bool
    gone: datetime | None
    dirty: bool
    observed_until: datetime
    history: tuple[Observation, ...]
    facts: PodFacts
    records: tuple[GpuAllocation, ...] | None
    ending: Ending | None


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """Units of a resource that a node offers from `start`; open while `until` is None."""

    node: str
    resource: str
    start: datetime
    until: datetime | None
    accelerator: str
    quantity: int
    condition: str

    @property
    def offer(self) -> tuple[str, int, str]:
        """What is offered while the interval lasts."""
        return self.accelerator, self.quantity, self.condition


@dataclass(frozen=True, slots=True)
class ScanRow:
    """Units that the agent knew to be held at an instant, that a list showed, and that are in one of the two only."""

    at: datetime
    watched: int
    scanned: int
    differing: int


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody must look at, and from when to when it was so: the platform knows in which billing months that is."""

    text: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a stream was read: its version, the instant up to which everything is known, and the number of its list."""

    version: str | None = None
    synced_at: datetime | None = None
    list: int = 0


_encode: Final = msgspec.json.Encoder().encode
_history: Final = msgspec.json.Decoder(tuple[PodSnapshot | PodDeleted | PodMissing, ...])
_facts: Final = msgspec.json.Decoder(PodFacts)
_records: Final = msgspec.json.Decoder(tuple[GpuAllocation, ...])
_ending: Final = msgspec.json.Decoder(Ending)
_node: Final = msgspec.json.Decoder(NodeFacts)
POD_COLUMNS: Final = (
    "uid, node, version, first_version, first_seen_us, seen_us, ended, gone_us, dirty, observed_us, history, facts, "
    "records, ending"
)


class Store:
    """Statements over the tables; transactions are the caller's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.executescript(SCHEMA + NOTES_BEFORE)

    def cursor(self, kind: str) -> Cursor:
        """How far a stream was read; nowhere, before its first list."""
        row = self.connection.execute(
            "SELECT version, synced_us, list FROM stream WHERE kind = ?", (kind,)
        ).fetchone()
        return Cursor(row[0], _instant(row[1]), row[2]) if row else Cursor()

    def list_begins(self, kind: str) -> None:
        """Number a new list."""
        self.connection.execute("INSERT OR IGNORE INTO stream (kind) VALUES (?)", (kind,))
        self.connection.execute("UPDATE stream SET list = list + 1 WHERE kind = ?", (kind,))

    def age(self, kind: str) -> None:
        """Make what is known of these objects older than every version, in the order that it has."""
        if kind == "nodes":
            self.connection.execute("UPDATE node SET version = 0")
        if kind == "pods":
            self.connection.execute("UPDATE pod SET version = 0")
            for row in self._pods("1"):
                aged = [msgspec.structs.replace(item, version=place - len(row.history))
                        for place, item in enumerate(row.history)]  # fmt: skip
                self.connection.execute("UPDATE pod SET history = ? WHERE uid = ?", (_encode(aged), row.uid))

    def reached(self, kind: str, version: str, synced_at: datetime | None, *, listed: bool = False) -> None:
        """Note up to where a stream was read; `synced_at` only moves forward."""
        self.connection.execute("INSERT OR IGNORE INTO stream (kind) VALUES (?)", (kind,))
        synced_us = to_us(synced_at) if synced_at else None
        self.connection.execute(
            """UPDATE stream SET version = ?1, synced_us = max(coalesce(synced_us, ?2), coalesce(?2, synced_us)),
                      listed_us = CASE WHEN ?3 THEN ?2 ELSE listed_us END WHERE kind = ?4""",
            (version, synced_us, listed, kind),
        )

    def pod(self, uid: str) -> PodRow | None:
        """A pod by its UID."""
        row = self.connection.execute(f"SELECT {POD_COLUMNS} FROM pod WHERE uid = ?", (uid,)).fetchone()  # noqa: S608
        return _pod_row(row) if row else None

    def put_pod(self, row: PodRow, list_number: int) -> None:
        """Write all that is known of a pod."""
        self.connection.execute(
            f"INSERT OR REPLACE INTO pod ({POD_COLUMNS}, list) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608
            (
                row.uid, row.node, row.version, row.first_version, to_us(row.first_seen), to_us(row.seen), row.ended,
                to_us(row.gone) if row.gone else None, row.dirty, to_us(row.observed_until), _encode(row.history),
                _encode(row.facts), _encode(row.records) if row.records is not None else None,
                _encode(row.ending) if row.ending else None, list_number,
            ),
        )  # fmt: skip

    def unchanged(self, versions: Sequence[tuple[str, int]], seen_at: datetime, list_number: int) -> set[str]:
        """Mark those of (uid, version) that are known in this very version, or ended, as seen again; their uids."""
        found: set[str] = set()
        for uid, version in versions:
            changed = self.connection.execute(
                """UPDATE pod SET seen_us = max(seen_us, ?), list = ?, observed_us = max(observed_us, ?)
                   WHERE uid = ? AND version = ? AND ended = 0""",
                (us := to_us(seen_at), list_number, us, uid, version),
            )
            if changed.rowcount:
                found.add(uid)
        return found

    def absent(self, list_number: int, version: int) -> Iterator[PodRow]:
        """Open pods that a list did not contain though they are older than it, as they are when each is asked for."""
        return self._pods("ended = 0 AND list < ? AND version <= ?", (list_number, version))

    def _pods(self, which: str, parameters: tuple[int, ...] = ()) -> Iterator[PodRow]:
        """Pods one after the other: their uids are read at once, so that they may be changed meanwhile; all that is
        known of twenty thousand pods would be a hundred megabytes.
        """
        uids = self.connection.execute(f"SELECT uid FROM pod WHERE {which} ORDER BY uid", parameters).fetchall()  # noqa: S608
        return (row for (uid,) in uids if (row := self.pod(uid)) is not None)

    def mark_gone(self, uid: str, at: datetime) -> None:
        """An ended pod's object is no longer there."""
        key = (to_us(at), uid)
        self.connection.execute("UPDATE pod SET gone_us = coalesce(gone_us, ?) WHERE uid = ? AND ended = 1", key)

    def mark_absent_gone(self, list_number: int, at: datetime) -> None:
        """Ended pods that a list did not contain are gone."""
        self.connection.execute(
            "UPDATE pod SET gone_us = coalesce(gone_us, ?) WHERE ended = 1 AND list < ?", (to_us(at), list_number)
        )

    def mark_listed(self, uid: str, list_number: int) -> None:
        """An ended pod's object is still there."""
        self.connection.execute("UPDATE pod SET list = ? WHERE uid = ? AND ended = 1", (list_number, uid))

    def forget_gone(self, before: datetime) -> None:
        """Drop pods that ended, were reported, and whose objects have been gone since before."""
        self.connection.execute("DELETE FROM pod WHERE gone_us < ? AND ended = 1 AND dirty = 0", (to_us(before),))

    def unreported(self, *, everything: bool) -> Iterator[PodRow]:
        """Pods with news, or all open ones as well."""
        return self._pods("dirty = 1 OR ended = 0" if everything else "dirty = 1")

    def undescribed(self) -> Iterator[PodRow]:
        """Pods whose node was not known when they were seen."""
        return self._pods("dirty = 1 AND records IS NULL")

    def reported(self, uids: Iterable[str]) -> None:
        """The news of these pods stand in the spool."""
        self.connection.executemany("UPDATE pod SET dirty = 0 WHERE uid = ?", [(uid,) for uid in uids])

    def open_versions(self) -> dict[str, int]:
        """Versions of the pods that hold, by uid."""
        return dict(self.connection.execute("SELECT uid, version FROM pod WHERE ended = 0"))

    def counts(self) -> tuple[int, int, int]:
        """Open pods, ended pods that are kept, pods with news."""
        row = self.connection.execute(
            "SELECT coalesce(sum(ended = 0), 0), coalesce(sum(ended), 0), coalesce(sum(dirty), 0) FROM pod"
        ).fetchone()
        return int(row[0]), int(row[1]), int(row[2])

    def node(self, name: str) -> NodeFacts | None:
        """A node as last seen, whether it is still there or not."""
        row = self.connection.execute("SELECT facts FROM node WHERE name = ?", (name,)).fetchone()
        return _node.decode(row[0]) if row else None

    def node_version(self, name: str) -> int | None:
        """The version in which a present node was last seen."""
        row = self.connection.execute("SELECT version FROM node WHERE name = ? AND present = 1", (name,)).fetchone()
        return int(row[0]) if row else None

    def put_node(self, name: str, version: int, list_number: int, facts: NodeFacts) -> None:
        """Write a node as it is now."""
        self.connection.execute(
            "INSERT OR REPLACE INTO node (name, version, list, present, facts) VALUES (?, ?, ?, 1, ?)",
            (name, version, list_number, _encode(facts)),
        )

    def absent_nodes(self, list_number: int) -> list[str]:
        """Present nodes that a list did not contain."""
        rows = self.connection.execute("SELECT name FROM node WHERE present = 1 AND list < ?", (list_number,))
        return [name for (name,) in rows.fetchall()]

    def node_left(self, name: str) -> None:
        """A node is no longer there; what it was stays known."""
        self.connection.execute("UPDATE node SET present = 0 WHERE name = ?", (name,))

    def open_capacity(self, node: str) -> dict[str, CapacityRow]:
        """What a node offers now, by resource."""
        rows = self.connection.execute(f"SELECT {CAPACITY} FROM capacity WHERE node = ? AND until_us IS NULL", (node,))  # noqa: S608
        return {row.resource: row for row in map(_capacity_row, rows.fetchall())}

    def _begin_capacity(self, row: CapacityRow) -> None:
        """A node offers something from now on; an empty interval of the same start is replaced."""
        self.connection.execute(
            "INSERT OR REPLACE INTO capacity VALUES (?, ?, ?, NULL, ?, ?, ?, 1)",
            (row.node, row.resource, to_us(row.start), row.accelerator, row.quantity, row.condition),
        )

    def _end_capacity(self, row: CapacityRow, until: datetime) -> None:
        """A node stopped offering it; what was offered for no time is forgotten."""
        key = (row.node, row.resource, to_us(row.start))
        if until <= row.start:
            self.connection.execute("DELETE FROM capacity WHERE node = ? AND resource = ? AND start_us = ?", key)
            return
        self.connection.execute(
            "UPDATE capacity SET until_us = ?, dirty = 1 WHERE node = ? AND resource = ? AND start_us = ?",
            (to_us(until), *key),
        )

    def follow_capacity(
        self, known: Mapping[str, CapacityRow], now: Mapping[str, CapacityRow], at: datetime
    ) -> None:
        """End and begin intervals, by resource: one goes on while what is offered stays the same."""
        for name, row in known.items():
            if name not in now or row.offer != now[name].offer:
                self._end_capacity(row, at)
        for name, row in now.items():
            if name not in known or row.offer != known[name].offer:
                self._begin_capacity(row)

    def unreported_capacity(self, *, everything: bool) -> list[CapacityRow]:
        """Intervals with news, or all open ones as well."""
        which = "dirty = 1 OR until_us IS NULL" if everything else "dirty = 1"
        rows = self.connection.execute(f"SELECT {CAPACITY} FROM capacity WHERE {which} ORDER BY 1, 2, 3")  # noqa: S608
        return [_capacity_row(row) for row in rows.fetchall()]

    def capacity_reported(self) -> None:
        """All news of capacity stand in the spool; ended intervals are not needed any more."""
        self.connection.execute("DELETE FROM capacity WHERE until_us IS NOT NULL")
        self.connection.execute("UPDATE capacity SET dirty = 0 WHERE dirty = 1")

    def begin_watching(self, at: datetime) -> None:
        """The first list is complete: what came and went before is in no state of this agent."""
        self.connection.execute("INSERT OR IGNORE INTO watched_since VALUES (1, ?)", (to_us(at),))

    def watched_since(self) -> datetime | None:
        """Since when this state knows everything but what `unwatched` says; None before the first list is complete."""
        row = self.connection.execute("SELECT at_us FROM watched_since").fetchone()
        return from_us(row[0]) if row else None

    def note_unwatched(self, start: datetime, end: datetime) -> None:
        """Nobody watched in [start, end): whole pods may have come and gone."""
        if end > start:
            self.connection.execute("INSERT OR REPLACE INTO unwatched VALUES (?, ?)", (to_us(start), to_us(end)))

    def unwatched(self) -> list[tuple[datetime, datetime]]:
        """Unwatched intervals that were not reported yet."""
        rows = self.connection.execute("SELECT start_us, end_us FROM unwatched ORDER BY 1").fetchall()
        return [(from_us(start), from_us(end)) for start, end in rows]

    def unwatched_reported(self) -> None:
        """All such stretches stand in the spool."""
        self.connection.execute("DELETE FROM unwatched")

    def note_scan(self, row: ScanRow) -> None:
        """Keep the findings of a scan until they are reported."""
        self.connection.execute(
            "INSERT OR REPLACE INTO scan VALUES (?, ?, ?, ?)", (to_us(row.at), row.watched, row.scanned, row.differing)
        )

    def scans(self) -> list[ScanRow]:
        """Findings of scans that were not reported yet."""
        rows = self.connection.execute("SELECT at_us, watched, scanned, differing FROM scan ORDER BY 1").fetchall()
        return [ScanRow(from_us(at), *counts) for at, *counts in rows]

    def scans_reported(self) -> None:
        """All of them stand in the spool."""
        self.connection.execute("DELETE FROM scan")

    def note_problem(self, subject: str, text: str, at: datetime) -> None:
        """Something that could not be metered as it should."""
        self._note(PROBLEM, subject, text[:500], at)

    def note_unknown(self, name: str, units: int, at: datetime) -> None:
        """Pods request an unknown extended resource, or claim devices of an unknown driver."""
        self._note(UNKNOWN_RESOURCE, name, str(units), at)

    def _note(self, kind: str, subject: str, text: str, at: datetime) -> None:
        self.connection.execute(
            """INSERT INTO note VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (kind, subject) DO UPDATE
               SET text = excluded.text, since_us = min(since_us, ?4), seen_us = max(seen_us, ?4)""",
            (kind, subject, text, to_us(at)),
        )

    def unknown_resources(self) -> dict[str, Note]:
        """Unknown extended resources, with the units of the last request."""
        return {subject: note for subject, note in self._notes(UNKNOWN_RESOURCE)}

    def problems(self) -> dict[str, Note]:
        """The latest problems by what they are about, and how many more there were lately."""
        every = self._notes(PROBLEM)
        rest = [note for _, note in every[MOST_PROBLEMS:] if every[0][1].until - note.until < LATELY]
        found = dict(every[:MOST_PROBLEMS])
        if rest:
            text = f"{len(rest)} more cannot be metered: see the log of the agent"
            found["others"] = Note(text, rest[0].until, rest[0].until)
        return found

    def _notes(self, kind: str) -> list[tuple[str, Note]]:
        """The latest first."""
        rows = self.connection.execute(
            "SELECT subject, text, since_us, seen_us FROM note WHERE kind = ? ORDER BY seen_us DESC, subject", (kind,)
        )
        return [(subject, Note(text, from_us(since), from_us(seen))) for subject, text, since, seen in rows.fetchall()]


CAPACITY: Final = "node, resource, start_us, until_us, accelerator, quantity, condition"


def _instant(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else from_us(microseconds)


def _pod_row(row: tuple[Any, ...]) -> PodRow:
    uid, node, version, first_version, first_seen, seen, ended, gone, dirty, observed, *blobs = row
    history, facts, records, ending = blobs
    return PodRow(
        uid, node, version, first_version, from_us(first_seen), from_us(seen), bool(ended), _instant(gone), bool(dirty),
        from_us(observed), _history.decode(history), _facts.decode(facts),
        None if records is None else _records.decode(records), None if ending is None else _ending.decode(ending),
    )  # fmt: skip


def _capacity_row(row: tuple[str, str, int, int | None, str, int, str]) -> CapacityRow:
    node, resource, start, until, accelerator, quantity, condition = row
    return CapacityRow(node, resource, from_us(start), _instant(until), accelerator, quantity, condition)
