"""State of the agent on disk: every pod and allocation, every node, and how far each stream was read.

One SQLite file with the spool, on one connection: the state, the stream version that it reflects and the reports about it
are there together after a crash, or not at all. Instants are whole microseconds since 1970.
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
"""Migration from earlier versions, which named the month (", 2026-10") at the end of a subject; the platform adds it now, in
its own time zone. Notes of unknown resources are dropped: they are noted again.
"""
MOST_PROBLEMS: Final = 99
"""Most problems in a report: the platform accepts a hundred subjects, and the last says how many more there are."""
LATELY: Final = timedelta(days=31)
PROBLEM, UNKNOWN_RESOURCE = "problem", "unknown"


@dataclass(frozen=True, slots=True)
class PodRow:
    """State of one pod that was ever seen bound to a node."""

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
        """Return the offer that stays the same while the interval lasts."""
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
    """Problem for a person to look at, and its first and last instants, from which the platform knows its billing months."""

    text: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a stream: its version, the instant up to which everything is known, and the number of its list."""

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
    """Statements over the tables; the caller opens and commits transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.executescript(SCHEMA + NOTES_BEFORE)

    def cursor(self, kind: str) -> Cursor:
        """Return how far a stream was read; an empty cursor before its first list."""
        row = self.connection.execute(
            "SELECT version, synced_us, list FROM stream WHERE kind = ?", (kind,)
        ).fetchone()
        return Cursor(row[0], _instant(row[1]), row[2]) if row else Cursor()

    def list_begins(self, kind: str) -> None:
        """Number a new list."""
        self.connection.execute("INSERT OR IGNORE INTO stream (kind) VALUES (?)", (kind,))
        self.connection.execute("UPDATE stream SET list = list + 1 WHERE kind = ?", (kind,))

    def age(self, kind: str) -> None:
        """Make all known objects of this kind older than every version; each pod's history keeps its order."""
        if kind == "nodes":
            self.connection.execute("UPDATE node SET version = 0")
        if kind == "pods":
            self.connection.execute("UPDATE pod SET version = 0")
            for row in self._pods("1"):
                aged = [msgspec.structs.replace(item, version=place - len(row.history))
                        for place, item in enumerate(row.history)]  # fmt: skip
                self.connection.execute("UPDATE pod SET history = ? WHERE uid = ?", (_encode(aged), row.uid))

    def reached(self, kind: str, version: str, synced_at: datetime | None, *, listed: bool = False) -> None:
        """Note how far a stream was read; `synced_at` only moves forward."""
        self.connection.execute("INSERT OR IGNORE INTO stream (kind) VALUES (?)", (kind,))
        # SQLite's max() is NULL if either value is, hence coalesce on both sides.
        synced_us = to_us(synced_at) if synced_at else None
        self.connection.execute(
            """UPDATE stream SET version = ?1, synced_us = max(coalesce(synced_us, ?2), coalesce(?2, synced_us)),
                      listed_us = CASE WHEN ?3 THEN ?2 ELSE listed_us END WHERE kind = ?4""",
            (version, synced_us, listed, kind),
        )

    def pod(self, uid: str) -> PodRow | None:
        """Return a pod by its UID, or None."""
        row = self.connection.execute(f"SELECT {POD_COLUMNS} FROM pod WHERE uid = ?", (uid,)).fetchone()  # noqa: S608
        return _pod_row(row) if row else None

    def put_pod(self, row: PodRow, list_number: int) -> None:
        """Write the state of a pod."""
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
        """Mark open pods that are known in this very version as seen again; return their uids."""
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
        """Yield open pods that a list did not contain though they are older than it, each read only when it is its turn."""
        return self._pods("ended = 0 AND list < ? AND version <= ?", (list_number, version))

    def _pods(self, which: str, parameters: tuple[int, ...] = ()) -> Iterator[PodRow]:
        """Yield pods one by one. Only their uids are read at once, so that pods may be changed meanwhile: the state of
        twenty thousand pods would be a hundred megabytes.
        """
        uids = self.connection.execute(f"SELECT uid FROM pod WHERE {which} ORDER BY uid", parameters).fetchall()  # noqa: S608
        return (row for (uid,) in uids if (row := self.pod(uid)) is not None)

    def mark_gone(self, uid: str, at: datetime) -> None:
        """Note since when an ended pod's object is gone."""
        key = (to_us(at), uid)
        self.connection.execute("UPDATE pod SET gone_us = coalesce(gone_us, ?) WHERE uid = ? AND ended = 1", key)

    def mark_absent_gone(self, list_number: int, at: datetime) -> None:
        """Note since when ended pods that a list did not contain are gone."""
        self.connection.execute(
            "UPDATE pod SET gone_us = coalesce(gone_us, ?) WHERE ended = 1 AND list < ?", (to_us(at), list_number)
        )

    def mark_listed(self, uid: str, list_number: int) -> None:
        """Note that an ended pod's object is still there."""
        self.connection.execute("UPDATE pod SET list = ? WHERE uid = ? AND ended = 1", (list_number, uid))

    def forget_gone(self, before: datetime) -> None:
        """Delete pods that ended, were reported, and whose objects have been gone since before `before`."""
        self.connection.execute("DELETE FROM pod WHERE gone_us < ? AND ended = 1 AND dirty = 0", (to_us(before),))

    def unreported(self, *, everything: bool) -> Iterator[PodRow]:
        """Yield pods with news, and with `everything` all open ones as well."""
        return self._pods("dirty = 1 OR ended = 0" if everything else "dirty = 1")

    def undescribed(self) -> Iterator[PodRow]:
        """Yield pods whose allocations are not described yet."""
        return self._pods("dirty = 1 AND records IS NULL")

    def reported(self, uids: Iterable[str]) -> None:
        """Mark the news of these pods as put into the spool."""
        self.connection.executemany("UPDATE pod SET dirty = 0 WHERE uid = ?", [(uid,) for uid in uids])

    def open_versions(self) -> dict[str, int]:
        """Return the versions of the open pods, by uid."""
        return dict(self.connection.execute("SELECT uid, version FROM pod WHERE ended = 0"))

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of open pods, of ended pods that are kept, and of pods with news."""
        row = self.connection.execute(
            "SELECT coalesce(sum(ended = 0), 0), coalesce(sum(ended), 0), coalesce(sum(dirty), 0) FROM pod"
        ).fetchone()
        return int(row[0]), int(row[1]), int(row[2])

    def node(self, name: str) -> NodeFacts | None:
        """Return a node as last seen, even if it is gone, or None."""
        row = self.connection.execute("SELECT facts FROM node WHERE name = ?", (name,)).fetchone()
        return _node.decode(row[0]) if row else None

    def node_version(self, name: str) -> int | None:
        """Return the version in which a present node was last seen, or None."""
        row = self.connection.execute("SELECT version FROM node WHERE name = ? AND present = 1", (name,)).fetchone()
        return int(row[0]) if row else None

    def put_node(self, name: str, version: int, list_number: int, facts: NodeFacts) -> None:
        """Write a node as it is now."""
        self.connection.execute(
            "INSERT OR REPLACE INTO node (name, version, list, present, facts) VALUES (?, ?, ?, 1, ?)",
            (name, version, list_number, _encode(facts)),
        )

    def absent_nodes(self, list_number: int) -> list[str]:
        """Return present nodes that a list did not contain."""
        rows = self.connection.execute("SELECT name FROM node WHERE present = 1 AND list < ?", (list_number,))
        return [name for (name,) in rows.fetchall()]

    def node_left(self, name: str) -> None:
        """Mark a node as gone; its facts stay known."""
        self.connection.execute("UPDATE node SET present = 0 WHERE name = ?", (name,))

    def open_capacity(self, node: str) -> dict[str, CapacityRow]:
        """Return a node's present offer, by resource."""
        rows = self.connection.execute(f"SELECT {CAPACITY} FROM capacity WHERE node = ? AND until_us IS NULL", (node,))  # noqa: S608
        return {row.resource: row for row in map(_capacity_row, rows.fetchall())}

    def _begin_capacity(self, row: CapacityRow) -> None:
        """Begin an interval of a node's offer; an empty interval of the same start is replaced."""
        self.connection.execute(
            "INSERT OR REPLACE INTO capacity VALUES (?, ?, ?, NULL, ?, ?, ?, 1)",
            (row.node, row.resource, to_us(row.start), row.accelerator, row.quantity, row.condition),
        )

    def _end_capacity(self, row: CapacityRow, until: datetime) -> None:
        """End an interval of a node's offer; an empty one is deleted."""
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
        """End and begin intervals, by resource: one goes on while the offer stays the same."""
        for name, row in known.items():
            if name not in now or row.offer != now[name].offer:
                self._end_capacity(row, at)
        for name, row in now.items():
            if name not in known or row.offer != known[name].offer:
                self._begin_capacity(row)

    def unreported_capacity(self, *, everything: bool) -> list[CapacityRow]:
        """Return intervals with news, and with `everything` all open ones as well."""
        which = "dirty = 1 OR until_us IS NULL" if everything else "dirty = 1"
        rows = self.connection.execute(f"SELECT {CAPACITY} FROM capacity WHERE {which} ORDER BY 1, 2, 3")  # noqa: S608
        return [_capacity_row(row) for row in rows.fetchall()]

    def capacity_reported(self) -> None:
        """Mark all news of capacity as put into the spool; delete ended intervals."""
        self.connection.execute("DELETE FROM capacity WHERE until_us IS NOT NULL")
        self.connection.execute("UPDATE capacity SET dirty = 0 WHERE dirty = 1")

    def begin_watching(self, at: datetime) -> None:
        """Note when the first list was complete: pods that came and went before it are unknown."""
        self.connection.execute("INSERT OR IGNORE INTO watched_since VALUES (1, ?)", (to_us(at),))

    def watched_since(self) -> datetime | None:
        """Return since when the state is complete, apart from `unwatched`; None before the first list is complete."""
        row = self.connection.execute("SELECT at_us FROM watched_since").fetchone()
        return from_us(row[0]) if row else None

    def note_unwatched(self, start: datetime, end: datetime) -> None:
        """Note that no watch covered [start, end): whole pods may have come and gone."""
        if end > start:
            self.connection.execute("INSERT OR REPLACE INTO unwatched VALUES (?, ?)", (to_us(start), to_us(end)))

    def unwatched(self) -> list[tuple[datetime, datetime]]:
        """Return unwatched intervals that were not reported yet."""
        rows = self.connection.execute("SELECT start_us, end_us FROM unwatched ORDER BY 1").fetchall()
        return [(from_us(start), from_us(end)) for start, end in rows]

    def unwatched_reported(self) -> None:
        """Delete unwatched intervals, which are all in the spool."""
        self.connection.execute("DELETE FROM unwatched")

    def note_scan(self, row: ScanRow) -> None:
        """Keep the result of a scan until it is reported."""
        self.connection.execute(
            "INSERT OR REPLACE INTO scan VALUES (?, ?, ?, ?)", (to_us(row.at), row.watched, row.scanned, row.differing)
        )

    def scans(self) -> list[ScanRow]:
        """Return results of scans that were not reported yet."""
        rows = self.connection.execute("SELECT at_us, watched, scanned, differing FROM scan ORDER BY 1").fetchall()
        return [ScanRow(from_us(at), *counts) for at, *counts in rows]

    def scans_reported(self) -> None:
        """Delete results of scans, which are all in the spool."""
        self.connection.execute("DELETE FROM scan")

    def note_problem(self, subject: str, text: str, at: datetime) -> None:
        """Note a problem: an object that could not be metered as it should."""
        self._note(PROBLEM, subject, text[:500], at)

    def note_unknown(self, name: str, units: int, at: datetime) -> None:
        """Note requests for an unknown extended resource, or claims of an unknown driver."""
        self._note(UNKNOWN_RESOURCE, name, str(units), at)

    def _note(self, kind: str, subject: str, text: str, at: datetime) -> None:
        self.connection.execute(
            """INSERT INTO note VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (kind, subject) DO UPDATE
               SET text = excluded.text, since_us = min(since_us, ?4), seen_us = max(seen_us, ?4)""",
            (kind, subject, text, to_us(at)),
        )

    def unknown_resources(self) -> dict[str, Note]:
        """Return unknown extended resources, with the units of the last request."""
        return {subject: note for subject, note in self._notes(UNKNOWN_RESOURCE)}

    def problems(self) -> dict[str, Note]:
        """Return the latest problems by subject, and the number of further ones of the last 31 days."""
        every = self._notes(PROBLEM)
        rest = [note for _, note in every[MOST_PROBLEMS:] if every[0][1].until - note.until < LATELY]
        found = dict(every[:MOST_PROBLEMS])
        if rest:
            text = f"{len(rest)} more cannot be metered: see the log of the agent"
            found["others"] = Note(text, rest[0].until, rest[0].until)
        return found

    def _notes(self, kind: str) -> list[tuple[str, Note]]:
        """Return notes of a kind, the latest first."""
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
