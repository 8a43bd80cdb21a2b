"""Allocations of devices that pods hold through claims (DRA), in pieces of time in which each pod's part stays the same.

A claim that several pods hold at once is counted once: each of k pods holds 1/k of it, from the binding of the latest of
them until the first of them ends. When the share changes, an allocation ends and another begins, because the fraction of a
device is part of an allocation's identity. The pods' own allocations say which pods use a claim, so a bill for a shared
claim is as exact as theirs, whenever the claim itself was read.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Final

import msgspec

from metering.accelerators import device_fraction
from metering.allocation import TOLERANCE, Ending, Hold, Rule, hold_of
from metering.claims import (
    EXTENDED_RESOURCE_CLAIM,
    Claim,
    ClaimedDevices,
    PodClaims,
    allocated_through_claims,
    devices_of,
    places_of,
)
from metering.k8s.capacity import CLAIMED
from metering.k8s.claim_store import ClaimedHold, ClaimStore, Holder
from metering.k8s.description import UNKNOWN, report_of
from metering.k8s.objects import PodFacts, Slice
from metering.k8s.store import CapacityRow, PodRow, Store
from metering.k8s.stream import SLICES, Changes, ListEnds, ListPage
from metering.record_checks import RecordError
from metering.records import GpuAllocation, hold_id
from metering.slice_capacity import beyond_the_plugin, offered_by, slice_offer

CLAIM_PATIENCE: Final = timedelta(minutes=2)
"""Distance by which the stream of claims must have passed a pod before a claim that it did not report counts as missing."""

Describe = Callable[[PodFacts, Hold], GpuAllocation]
"""Function that makes a pod's allocation, without its own resource, product, quantity and fraction."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Units of one product that a pod held in [start, end), each `fraction` of a device; still held while `end` is None."""

    resource: str
    accelerator: str
    quantity: int
    fraction: Fraction
    start: datetime
    end: datetime | None


def pieces_of(
    pod: str, start: datetime, end: datetime | None, parts: Sequence[ClaimedDevices], holders: Sequence[Holder]
) -> list[Piece]:
    """Cut a pod's hold [start, end) of each product wherever another pod begins or ceases to share a claim to it.

    Devices of one resource and product through several claims are one piece: its fraction is their mean, so that quantity
    times fraction is their sum. Every bound stays a cut, also of a pod that held for no time: a reported piece then stays
    true whatever is learned later.
    """
    grouped: dict[tuple[str, str], list[ClaimedDevices]] = defaultdict(list)
    for part in parts:
        grouped[part.resource, part.accelerator].append(part)
    found = []
    for (resource, accelerator), equal in sorted(grouped.items()):
        quantity = sum(part.quantity for part in equal)
        claims = {part.claim for part in equal}
        bounds = {at for item in holders if item.claim in claims for at in (item.start, item.end) if at}
        inside = sorted(at for at in bounds if start < at and (end is None or at < end))
        cuts: list[datetime | None] = [start, *inside, end]
        for since, until in pairwise(cuts):
            if since is not None and since != until:
                fraction = _devices(pod, since, equal, holders) / quantity
                found.append(Piece(resource, accelerator, quantity, fraction, since, until))
    return found


def _devices(pod: str, at: datetime, parts: Iterable[ClaimedDevices], holders: Iterable[Holder]) -> Fraction:
    """Sum the devices that a pod holds of some claims at an instant: its part of each among all pods that hold it then."""
    others = [item for item in holders if item.pod != pod and item.start <= at and (item.end is None or at < item.end)]
    sharing = Counter(item.claim for item in others)
    return sum((part.quantity * part.share / (1 + sharing[part.claim]) for part in parts), Fraction(0))


class ClaimBook:
    """Reader of the streams of claims and slices, which makes the allocations of pods that hold claims.

    `drivers`: vendors of drivers of accelerators beyond the table.
    """

    def __init__(self, connection: sqlite3.Connection, store: Store, drivers: Mapping[str, str]) -> None:
        self.kept = ClaimStore(connection)
        self._store, self._drivers = store, drivers

    def claims(self, step: ListPage[Claim] | Changes[Claim]) -> None:
        """Keep allocated claims for the pods that they are reserved for."""
        found = step.objects if isinstance(step, ListPage) else [event.object for event in step.events]
        seen_at = step.asked_at if isinstance(step, ListPage) else step.received_at
        for claim in found:
            if claim.status is None or not claim.results:
                continue
            version = int(claim.metadata.resource_version or 0)
            self.kept.put_reservations(_billed(claim), version, seen_at)
            if claim.problem:
                self._store.note_problem(f"claim {claim.metadata.namespace}/{claim.metadata.name}", claim.problem, seen_at)

    def slices(self, step: ListPage[Slice] | Changes[Slice]) -> None:
        """Keep devices, and how many each node offers; a device stays known when its slice is gone."""
        number = self._store.cursor("slices").list
        if isinstance(step, ListPage):
            nodes = [self._slice(item, step.asked_at, number) for item in step.objects]
            self.offer(set().union(*nodes), step.asked_at)
            return
        for event in step.events:
            name = event.object.metadata.name
            left = self.kept.slice_gone(name) if event.deleted else self._slice(event.object, step.received_at, number)
            self.offer(left, step.received_at)

    def _slice(self, item: Slice, seen_at: datetime, number: int) -> set[str]:
        """Keep one slice; return the nodes that it concerns."""
        name = item.metadata.name
        try:
            devices = devices_of(item.spec)
            offer = slice_offer(item.spec, devices, self._drivers)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._store.note_problem(f"slice {name}", f"cannot be read: {error!r}"[:300], seen_at)
            return set()
        self.kept.put_devices(devices, offer.generation)
        return self.kept.put_slice(name, int(item.metadata.resource_version or 0), number, offer)

    def offer(self, nodes: Iterable[str], at: datetime) -> None:
        """Continue the record of the nodes' offers to claims, beyond the offers of device plugins for the same cards."""
        for node in sorted(nodes):
            rows = self._store.open_capacity(node)
            known = {name: row for name, row in rows.items() if name.startswith(CLAIMED)}
            plugin = {name: max(row.quantity, 0) for name, row in rows.items() if name not in known}
            offered = beyond_the_plugin(offered_by(self.kept.slices(node)), plugin, self._drivers)
            now = {
                resource: CapacityRow(node, resource, at, None, product or UNKNOWN, count, "")
                for resource, (product, count) in offered.items()
            }
            self._store.follow_capacity(known, now, at)

    def listed(self, kind: str, step: ListEnds, keep: timedelta) -> None:
        """Apply the end of a list: drop slices that were not in it, or rows of forgotten pods."""
        if kind == SLICES:
            self.offer(self.kept.absent_slices(self._store.cursor(kind).list), step.answered_at)
        else:
            self.kept.forget(step.asked_at - keep)

    def waits(self, uid: str, claims: PodClaims, first_seen: datetime) -> bool:
        """Return True if claims of a pod may still be reported, so that the pod cannot be metered yet."""
        if not claims.counted or self.kept.claimed(uid) is not None:
            return False
        passed = self._store.cursor("claims").synced_at
        return passed is None or passed < first_seen + CLAIM_PATIENCE

    def settle(self, describe: Describe, now: datetime) -> None:
        """Resolve the claims of pods as far as the streams have reported them, and end the holds of pods that ended."""
        for uid, known in self.kept.unsettled():
            row = self._store.pod(uid)
            hold = hold_of(row.history, row.facts.created_at) if row and row.records is not None else None
            if row is None or hold is None:
                continue
            if not known:
                self._resolve(row, hold, describe, now)
            if row.ending is not None and self.kept.end_holds(uid, row.ending.at):
                self.kept.disturb(uid)

    def _resolve(self, row: PodRow, hold: Hold, describe: Describe, now: datetime) -> None:
        """Resolve a pod's devices. Claims that stay unknown become a problem, and the rest is metered."""
        claims, reported = row.facts.claims, self.kept.reservations(row.uid)
        if any(name not in reported for name in claims.counted) and not self.waits(row.uid, claims, row.first_seen):
            reported = self._of_others(row, hold) | reported
        places = {place for claim in reported.values() for place in places_of(claim)}
        found = allocated_through_claims(claims, reported, self.kept.devices(places), drivers=self._drivers)
        # A problem of an ended pod belongs to the month of its end, not to that of its discovery.
        unknown, at = found.unknown, min(now, row.ending.at) if row.ending else now
        parts = tuple(msgspec.structs.replace(item, accelerator=item.accelerator or UNKNOWN) for item in found.held)
        for driver, count in found.drivers.items():
            self._store.note_unknown(f"dra/{driver}", count, at)
        if unknown and self.waits(row.uid, claims, row.first_seen):
            return
        if unknown:
            self._store.note_problem(row.facts.subject, "; ".join(unknown), at)
        before, whole = self.kept.claimed(row.uid), not unknown and not found.drivers
        if not whole and before is not None and before.parts == parts:
            return
        try:
            base = before.base if before else describe(row.facts, hold)
        except RecordError as error:
            self._store.note_problem(row.facts.subject, str(error), at)
            return
        self.kept.put_claimed(row.uid, ClaimedHold(base, parts), whole=whole)
        self.kept.disturb(row.uid)

    def _of_others(self, row: PodRow, hold: Hold) -> dict[str, Claim]:
        """Return a pod's claims as reported for other pods that certainly used them at the same time.

        A claim's devices do not change while a pod holds it, and it cannot vanish: so they are this pod's as well, although
        its own reservation came and went unwatched.
        """
        until = row.ending.earliest if row.ending else row.observed_until
        found = {}
        for name in row.facts.claims.counted:
            for uid, claim in self.kept.others(row.uid, row.facts.namespace, name):
                other = self._store.pod(uid)
                theirs = hold_of(other.history, other.facts.created_at) if other else None
                if other is None or theirs is None:
                    continue
                their_end = other.ending.earliest if other.ending else other.observed_until
                if max(hold.start, theirs.start) + TOLERANCE < min(until, their_end):
                    found[name] = claim
        return found

    def allocations(self, uid: str, ending: Ending | None, until: datetime) -> list[GpuAllocation]:
        """Return allocations of a pod's claims that have news, by its ending, or by how far it was seen.

        Pieces that were reported with this end are not reported again. A pod that was learned of late also cuts pieces that
        were reported before; a reported piece that turns out wrong (its share differed from its start) is ended where it
        began.
        """
        claimed = self.kept.claimed(uid)
        if claimed is None:
            return []
        base, reported = claimed.base, self.kept.pieces(uid)
        end = max(ending.at, base.started_at) if ending else None
        pieces = pieces_of(uid, base.started_at, end, claimed.parts, self.kept.holders(uid))
        records = (_renamed(_allocation(base, piece, ending, until), reported) for piece in pieces)
        made = {record.allocation_id: record for record in records}
        news = [record for name, record in made.items() if name not in reported or _is_news(record, reported[name])]
        for name, record in reported.items():
            # A piece whose end is its start was taken back before.
            if name not in made and record.ended_at != record.started_at:
                last = ending if end is not None and end <= record.started_at and record.ended_at is None else None
                news.append(report_of(record, record.started_at, last) if last else _cut(record, record.started_at))
        self.kept.put_pieces(news)
        return news


def _renamed(record: GpuAllocation, reported: Mapping[str, GpuAllocation]) -> GpuAllocation:
    """Return the record under an id that was not taken back before, though the same share came again in the same second."""
    name, again = record.allocation_id, 2
    while (before := reported.get(name)) is not None and before.ended_at == before.started_at:
        name, again = f"{record.allocation_id}#{again}", again + 1
    return msgspec.structs.replace(record, allocation_id=name)


def _is_news(record: GpuAllocation, reported: GpuAllocation) -> bool:
    before = (reported.ended_at, reported.end_rule, reported.end_estimated)
    return reported.ended_at is None or before != (record.ended_at, record.end_rule, record.end_estimated)


def _allocation(base: GpuAllocation, piece: Piece, ending: Ending | None, until: datetime) -> GpuAllocation:
    fraction = device_fraction(piece.fraction)
    name = f"{piece.resource}@{piece.accelerator}*{piece.quantity}*{fraction:f}"
    record = msgspec.structs.replace(
        base, allocation_id=hold_id(base.cluster, base.pod_uid, name, piece.start), resource=piece.resource,
        quantity=piece.quantity, device_fraction=fraction, accelerator=piece.accelerator, started_at=piece.start,
        observed_until=piece.start,
    )  # fmt: skip
    if piece.end is None or (ending is not None and piece.end >= ending.at):
        return report_of(record, until, ending)
    cut = _cut(record, piece.end)
    if ending is None or not ending.estimated or piece.end <= ending.earliest:
        return cut
    return msgspec.structs.replace(  # the pod may have ended before its share changed
        cut, end_estimated=True, end_earliest=max(ending.earliest, piece.start), end_latest=piece.end
    )


def _cut(record: GpuAllocation, at: datetime) -> GpuAllocation:
    changed = Rule.SHARE_CHANGED.value
    return msgspec.structs.replace(record, ended_at=at, observed_until=at, end_reason=changed, end_rule=changed)


def _billed(claim: Claim) -> Claim:
    """Return the claim without annotations of no use: a last-applied configuration is large."""
    kept = {EXTENDED_RESOURCE_CLAIM: ""} if claim.hidden else None
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=kept))
