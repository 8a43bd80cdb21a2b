"""Agent that turns steps of the streams into allocations on disk, and allocations into reports in the spool.

Every step is applied in one transaction with the version that it reaches. Reports are made from the state on disk, and only
while the spool is empty: the durable allocations are the queue, so an outage of any length costs the disk no more than one
row per pod. Reports contain states, not changes: to send one twice changes nothing.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from metering.accelerators import is_discovered
from metering.allocation import Ending, Hold, Rule, hold_of, remember
from metering.k8s.api import ApiError
from metering.k8s.capacity import CLAIMED, capacity_records, node_facts, offers
from metering.k8s.claims import ClaimBook
from metering.k8s.description import (
    Scope,
    SlurmPods,
    Surroundings,
    allocation_base,
    allocations_of,
    counted_requests,
    is_of_slurm,
    report_of,
)
from metering.k8s.objects import Complaint, Node, Pod, PodFacts, SeenPod, complaint, seen_pod
from metering.k8s.reconciliation import Difference
from metering.k8s.store import CapacityRow, PodRow, ScanRow, Store
from metering.k8s.stream import CLAIMS, SLICES, Changes, Event, ListBegins, ListEnds, ListPage, Step
from metering.observations import Observation, PodDeleted, PodMissing, PodSnapshot
from metering.record_checks import EARLIEST, RecordError
from metering.records import GpuAllocation
from metering.requests import RequestError
from metering.spool import Spool, SpoolFullError

log = logging.getLogger(__name__)
CLAIM_KINDS: Final = (CLAIMS, SLICES)
BODY_RECORDS: Final = 1000
KEEP_GONE: Final = timedelta(days=1)
"""Time for which an ended pod is remembered after its object vanished, so that a late event cannot reopen it."""
NODE_PATIENCE: Final = timedelta(minutes=2)
"""Longest wait of a pod until its node is seen and described, and its start reported, before the pod is reported without.
On a new node, pods are bound within a second of its devices, and the labels that say how those are shared come up to a
minute later.
"""
OF_SLURM: Final = (
    "Slurm accounts for pods as well: if its jobs are reported too, both are billed. Say --slurm-pods leave-out, or count "
    "where nobody reports the jobs"
)
READ_LATE: Final = (Rule.DELETED_SEEN, Rule.TERMINAL_SEEN)
"""Ends whose instant is the agent's reading: read late, they may lie anywhere in the time before."""


class Agent:
    """Agent of one cluster: applies steps of the streams, and puts reports into the spool.

    `connection`: the state file, which the spool shares; `look_around` looks up a pod's surroundings; `name` and `version`
    describe the agent to the platform.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        scope: Scope,
        *,
        name: str,
        version: str = "",
        look_around: Callable[[PodFacts], Surroundings] = lambda facts: Surroundings(),
        max_spool_bytes: int = 1 << 30,
    ) -> None:
        self._connection = connection
        self.store = Store(connection)
        self.spool = Spool(connection, max_bytes=max_spool_bytes)
        self.scope = scope
        self.claims = ClaimBook(connection, self.store, scope.drivers)
        self._name, self._version = name, version
        self._look_around = look_around
        self.reconciliation: Difference | None = None
        self.spool_full = False
        self._pods_went_back = False

    def apply(self, kind: str, step: Step) -> None:
        """Apply one step of a stream (`pods`, `nodes`, `claims`, `slices`); durable when this returns."""
        with self._connection:
            # IMMEDIATE: a transaction that reads first cannot write once the delivery has committed (SQLITE_BUSY_SNAPSHOT).
            self._connection.execute("BEGIN IMMEDIATE")
            if isinstance(step, ListBegins):
                self.store.list_begins(kind)
                if step.versions_went_back:
                    self._age(kind)
            elif kind in CLAIM_KINDS:
                self._claim_step(kind, step)
            elif isinstance(step, ListPage):
                self._page(kind, step)
            elif isinstance(step, ListEnds):
                self._list_ends(kind, step)
            else:
                self._changes(kind, step)

    def _age(self, kind: str) -> None:
        """Make all known objects older than any that comes: the server counts versions from an earlier one again."""
        self.store.age(kind)
        self.claims.kept.age(kind)
        self._pods_went_back |= kind == "pods"

    def _claim_step(self, kind: str, step: ListPage[Any] | ListEnds | Changes[Any]) -> None:
        if isinstance(step, ListEnds):
            self._listed(kind, step)
            self.claims.listed(kind, step, KEEP_GONE)
            return
        self._complain(kind, step.unreadable, step.asked_at if isinstance(step, ListPage) else step.received_at)
        (self.claims.claims if kind == CLAIMS else self.claims.slices)(step)
        if isinstance(step, Changes):
            self.store.reached(kind, step.version, step.received_at if step.current else None)

    def _page(self, kind: str, step: ListPage[Any]) -> None:
        number = self.store.cursor(kind).list
        self._complain(kind, step.unreadable, step.asked_at)
        if kind == "nodes":
            for node in step.objects:
                self._node(node, step.asked_at, number)
            return
        seen = [found for pod in step.objects if (found := self._read(pod, step.asked_at)) is not None]
        known = self.store.unchanged([(pod.facts.uid, pod.version) for pod in seen], step.asked_at, number)
        for pod in seen:
            if pod.facts.uid not in known:
                self._observe(pod, pod.snapshot(step.asked_at), number)

    def _list_ends(self, kind: str, step: ListEnds) -> None:
        number = self.store.cursor(kind).list
        if kind == "nodes":
            for name in self.store.absent_nodes(number):
                self._node_gone(name, step.answered_at, seen_until=self.store.cursor(kind).synced_at)
        else:
            self._pods_went_back = False
            watched_until = self._note_unwatched(step)
            for row in self.store.absent(number, int(step.version)):
                missing = PodMissing(row.uid, int(step.version), step.answered_at, watched_until)
                self._fold(row, missing, row.facts, row.version, number)
                self.store.mark_gone(row.uid, step.answered_at)
            self.store.mark_absent_gone(number, step.answered_at)
            self.store.forget_gone(step.asked_at - KEEP_GONE)
        self._listed(kind, step)

    def _listed(self, kind: str, step: ListEnds) -> None:
        """Note where the watch continues: at the list, or, if it had not broken, at its own version."""
        synced_at = self.store.cursor(kind).synced_at if step.goes_on_from else step.asked_at
        self.store.reached(kind, step.goes_on_from or step.version, synced_at, listed=True)

    def _note_unwatched(self, step: ListEnds) -> datetime | None:
        """Note the time since the watch broke as unwatched: no watch saw the pods that came and went in it.

        Return when the watch was last current; None if it goes on, or never was current.
        """
        self.store.begin_watching(step.answered_at)
        synced_at = self.store.cursor("pods").synced_at
        if step.goes_on_from or synced_at is None:
            return None
        self.store.note_unwatched(synced_at, step.answered_at)
        return synced_at

    def _changes(self, kind: str, step: Changes[Any]) -> None:
        cursor = self.store.cursor(kind)
        self._complain(kind, step.unreadable, step.received_at)
        for event in step.events:
            if kind == "nodes":
                self._node_event(event, step.received_at, cursor.list)
            else:
                self._pod_event(event, step, cursor.synced_at, cursor.list)
        self.store.reached(kind, step.version, step.received_at if step.current else None)

    def _pod_event(self, event: Event[Pod], step: Changes[Any], synced_at: datetime | None, number: int) -> None:
        pod = self._read(event.object, step.received_at)
        if pod is None:
            return
        at = step.received_at
        if not step.current:  # the past being caught up: the pod was alive after what is known, but maybe not now
            at = max(filter(None, (synced_at, pod.facts.created_at)), default=at)
        late_since = None if step.current else synced_at
        if event.deleted:
            final = pod.snapshot(step.received_at)
            deleted = PodDeleted(pod.facts.uid, pod.version, step.received_at, final, late_since)
            ending = self._observe(pod, deleted, number)
            self.store.mark_gone(pod.facts.uid, step.received_at)
        else:
            ended = pod.status.phase in ("Succeeded", "Failed")
            ending = self._observe(pod, pod.snapshot(step.received_at if ended else at), number)
        # Read late, such an end is only an upper bound: the platform must know the time before it as unwatched.
        if late_since and ending is not None and ending.rule in READ_LATE:
            self.store.note_unwatched(late_since, step.received_at)

    def _read(self, pod: Pod, at: datetime) -> SeenPod | None:
        """Return the pod if it requests anything that may be billed; note an unreadable pod as a problem."""
        try:
            found = seen_pod(pod, self.scope.aliases)
        except (msgspec.DecodeError, RequestError) as error:
            self._complain("pods", [complaint("pods", msgspec.json.decode(pod.metadata), error)], at)
            return None
        if found is None:
            return None
        if is_of_slurm(found.facts):
            if self.scope.slurm_pods is SlurmPods.LEAVE_OUT:
                return None
            if self.scope.slurm_pods is None:
                self.store.note_problem(f"Slurm in namespace {found.facts.namespace}", OF_SLURM, at)
        counted, unknown = counted_requests(found.facts.requests, self.scope)
        for name, units in unknown.items():
            self.store.note_unknown(name, units, at)
        return found if counted or unknown or found.facts.claims.counted else None

    def _observe(self, pod: SeenPod, observation: Observation, number: int) -> Ending | None:
        """Add an observation of a pod; return its ending if the observation ended it."""
        row = self.store.pod(pod.facts.uid)
        if isinstance(observation, PodSnapshot) and not observation.terminal and self._had_ended(pod, observation, row):
            text = "had ended and is there again: what it holds from now on is not metered"
            self.store.note_problem(pod.facts.subject, text, observation.observed_at)
        if row is not None and row.ended:
            self.store.mark_listed(row.uid, number)
            return None
        return self._fold(row, observation, pod.facts, pod.version, number)

    def _had_ended(self, pod: SeenPod, observation: PodSnapshot, row: PodRow | None) -> bool:
        """Return True if a pod that is there had ended, because its cluster was restored to an earlier state.

        An ended pod may be forgotten since: then a pod that was bound while the agent watched, but is unknown, had ended.
        """
        if row is not None:
            return row.ended and pod.version > row.history[-1].version
        hold = hold_of((observation,), pod.facts.created_at) if self._pods_went_back else None
        synced_at = self.store.cursor("pods").synced_at
        return hold is not None and synced_at is not None and hold.start < synced_at

    def _fold(
        self, row: PodRow | None, observation: Observation, facts: PodFacts, version: int, number: int
    ) -> Ending | None:
        """Add an observation to the known history of a pod; return the ending, if there is one."""
        history = remember(_seen_again(row), observation) if row else (observation,)
        hold = hold_of(history, facts.created_at)
        if hold is None:
            return None
        records = row.records if row else None
        # An unknown share may become known: grants and labels can be written after the pod is bound.
        if records is None or any(record.share_unknown for record in records):
            records = self._describe(facts, hold, observation.observed_at)
        self.store.put_pod(
            PodRow(
                uid=facts.uid, node=hold.node, version=max(version, row.version if row else 0),
                first_version=row.first_version if row else version,
                first_seen=row.first_seen if row else observation.observed_at,
                seen=max(observation.observed_at, row.seen) if row else observation.observed_at,
                ended=hold.ending is not None, gone=row.gone if row else None,
                dirty=row is None or row.dirty or hold.ending is not None or records != row.records,
                observed_until=max(hold.observed_until, row.observed_until) if row else hold.observed_until,
                history=history, facts=facts, records=records, ending=hold.ending,
            ),
            number,
        )  # fmt: skip
        if facts.claims.counted:
            self.claims.kept.add_claimant(facts.uid)
        return hold.ending

    def _describe(self, facts: PodFacts, hold: Hold, at: datetime) -> tuple[GpuAllocation, ...] | None:
        """Return a pod's allocations once node, start and surroundings are known, or were waited for; else None."""
        node = self.store.node(hold.node)
        waited = at - hold.start > NODE_PATIENCE
        undescribed = node is None or any(not is_discovered(name, node.labels) for name in facts.requests)
        if (undescribed or hold.start_rule is Rule.FIRST_SEEN) and not waited:
            return None
        around = self._look_around(facts)
        if not around.complete and not waited:
            return None
        try:
            return tuple(allocations_of(facts, hold, node, self.scope, around))
        except RecordError as error:
            self.store.note_problem(facts.subject, str(error), at)
            log.error("pod %s/%s cannot be reported: %s", facts.namespace, facts.name, error)
            # Not None: a record that breaks the contract would break it again at every report.
            return ()

    def _base(self, facts: PodFacts, hold: Hold) -> GpuAllocation:
        return allocation_base(facts, hold, self.store.node(hold.node), self.scope, self._look_around(facts))

    def _node_event(self, event: Event[Node], at: datetime, number: int) -> None:
        name, version = event.object.metadata.name, int(event.object.metadata.resource_version)
        known = self.store.node_version(name)
        if known is not None and version < known:
            return  # an event that was overtaken
        if event.deleted:
            self._node_gone(name, at)
            return
        self._node(event.object, at, number)

    def _node(self, node: Node, at: datetime, number: int) -> None:
        """Continue the capacity of a node; labels that explain a new node's devices apply from its start."""
        labels, version = node.metadata.labels or {}, int(node.metadata.resource_version)
        known, now = self._offered(node.metadata.name), offers(node, at, self.scope)
        explained = {
            resource: known.pop(resource) for resource, row in tuple(known.items())
            if is_discovered(resource, labels) and self._is_unexplained(row, at)
        }  # fmt: skip
        now |= {name: replace(row, start=explained[name].start) for name, row in now.items() if name in explained}
        self.store.put_node(node.metadata.name, version, number, node_facts(node, self.scope.aliases))
        self.store.follow_capacity(explained, {}, EARLIEST)
        self.store.follow_capacity(known, now, at)
        self.claims.offer([node.metadata.name], at)

    def _is_unexplained(self, row: CapacityRow, at: datetime) -> bool:
        """Return True if labels may still come that explain a node's units, which are not reported until then."""
        node = self.store.node(row.node) if row.until is None and at - row.start <= NODE_PATIENCE else None
        return node is not None and not is_discovered(row.resource, node.labels)

    def _node_gone(self, name: str, at: datetime, seen_until: datetime | None = None) -> None:
        # A node that vanished unwatched offers nothing after the watch was last current.
        self.store.follow_capacity(self._offered(name), {}, min(at, seen_until or at))
        self.store.node_left(name)

    def _offered(self, name: str) -> dict[str, CapacityRow]:
        """Return the node's own offer now, without its offer to claims, which slices report."""
        return {key: row for key, row in self.store.open_capacity(name).items() if not key.startswith(CLAIMED)}

    def refused(self, kind: str, error: ApiError, at: datetime) -> None:
        """Note missing rights to read a stream as a problem, which blocks the close and is not only a line of a log."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self.store.note_problem(f"reading {kind}", str(error), at)

    def listed_unreadable(self, complaints: Iterable[Complaint], at: datetime) -> None:
        """Note objects that an independent list cannot read either: no watch reports an unchanged pod again."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._complain("pods", complaints, at)

    def _complain(self, kind: str, unreadable: Iterable[Complaint], at: datetime) -> None:
        for subject, text in unreadable:
            log.error("%s: %s: %s", kind, subject, text)
            self.store.note_problem(subject, text, at)

    def scanned(self, difference: Difference) -> None:
        """Keep the result of a scan, also without a difference; durable when this returns.

        Forget pods that are long gone as well: a watch may go on for ever without a list, which else forgets them.
        """
        self.reconciliation = difference
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self.store.note_scan(
                ScanRow(difference.at, difference.watched_units, difference.scanned_units, difference.differing_units)
            )
            self.store.forget_gone(difference.at - KEEP_GONE)
            self.claims.kept.forget(difference.at - KEEP_GONE)

    def report(self, now: datetime, *, refresh: bool) -> int | None:
        """Put news and the watermark into the spool; with `refresh` also how far open allocations were seen.

        Return the number of allocation records; None while earlier reports wait to be delivered, or before the first list is
        complete, when nothing can be reported yet. News that are not reported now are reported later.
        """
        if len(self.spool):
            return None
        pods, nodes = self.store.cursor("pods"), self.store.cursor("nodes")
        if pods.synced_at is None:
            return None
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._describe_late(now)
                self.claims.settle(self._base, now)
                count = self._put(pods.synced_at, nodes.synced_at, refresh=refresh)
        except SpoolFullError as error:
            self.spool_full = True
            log.critical("%s", error)
            return None
        self.spool_full = False
        return count

    def _describe_late(self, now: datetime) -> None:
        for row in self.store.undescribed():
            hold = hold_of(_seen_again(row), row.facts.created_at)
            if hold is not None:
                records = self._describe(row.facts, hold, now)
                self.store.put_pod(replace(row, records=records), self.store.cursor("pods").list)

    def _put(self, pods_until: datetime, nodes_until: datetime | None, *, refresh: bool) -> int:
        count = self._put_allocations(pods_until, refresh=refresh)
        intervals = self.store.unreported_capacity(everything=refresh) if nodes_until else []
        intervals = [row for row in intervals if not self._is_unexplained(row, nodes_until or pods_until)]
        slices_until = self.store.cursor(SLICES).synced_at
        nodes = capacity_records(intervals, nodes_until or pods_until, slices_until, self.scope)
        for place in range(0, len(nodes), BODY_RECORDS):
            part = [_slim(record) for record in nodes[place : place + BODY_RECORDS]]
            self.spool.put("usage/capacity", msgspec.json.encode({"agent": self.info(), "nodes": part}))
        if nodes_until:
            self.store.capacity_reported()
        self.store.unwatched_reported()
        self.store.scans_reported()
        return count

    def _put_allocations(self, pods_until: datetime, *, refresh: bool) -> int:
        """Put the records of pods with news and return their number; at most one body of them is in memory at any time."""
        records: list[GpuAllocation] = []
        reported: list[str] = []
        watermark, count = pods_until, 0
        for row in self.store.unreported(everything=refresh):
            # The watermark must not pass a pod that waits: the platform would take its absence for no usage.
            waits = row.records is None or self.claims.waits(row.uid, row.facts.claims, row.first_seen)
            if waits:
                watermark = min(watermark, row.first_seen)
            else:
                reported.append(row.uid)
            found = self._records(row, max(row.observed_until, pods_until))
            records += found
            count += len(found)
            while len(records) > BODY_RECORDS:
                self._put_body(records[:BODY_RECORDS], None)
                del records[:BODY_RECORDS]
        self._put_body(records, watermark)
        self.store.reported(reported)
        return count

    def _records(self, row: PodRow, until: datetime) -> list[GpuAllocation]:
        """Return the reports of a pod as known by now."""
        found = [report_of(record, until, row.ending) for record in row.records or ()]
        if not row.facts.claims.counted:
            return found
        return found + self.claims.allocations(row.uid, row.ending, until)

    def _put_body(self, records: Sequence[GpuAllocation], watermark: datetime | None) -> None:
        """Put one body of up to a thousand records; the last body has the watermark, which covers all."""
        body: dict[str, Any] = {"agent": self.info(), "allocations": [_slim(record) for record in records]}
        if watermark is not None:
            body["watermark"], body["watched_since"] = watermark, self.store.watched_since()
            if unwatched := self.store.unwatched():
                body["unwatched"] = [{"from": start, "until": end} for start, end in unwatched]
            if scans := self.store.scans():
                body["scans"] = scans
        self.spool.put("usage/gpu-allocations", msgspec.json.encode(body))

    def info(self) -> dict[str, Any]:
        """Return the description of the agent, with all that it could not meter."""
        info: dict[str, Any] = {"name": self._name, "cluster": self.scope.cluster, "version": self._version}
        if unknown := {name: note for name, note in self.store.unknown_resources().items() if self.scope.is_unknown(name)}:
            info["unknown_resources"] = unknown
        if self.scope.no_accelerators:
            info["no_accelerators"] = sorted(self.scope.no_accelerators)
        if problems := self.store.problems():
            info["problems"] = problems
        if self.reconciliation:
            info["reconciliation"] = self.reconciliation
        return info


def _slim(record: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that are not null, and a null end or share, which state something too."""
    fields = msgspec.to_builtins(record, str_keys=True)
    return {name: value for name, value in fields.items() if value is not None or name in ("ended_at", "device_fraction")}


def _seen_again(row: PodRow) -> tuple[Observation, ...]:
    """Return the history with the last sighting of a pod that had not changed."""
    snapshots = [item for item in row.history if isinstance(item, PodSnapshot)]
    if not snapshots or row.ended or row.seen <= snapshots[-1].observed_at:
        return row.history
    return remember(row.history, msgspec.structs.replace(snapshots[-1], observed_at=row.seen))
