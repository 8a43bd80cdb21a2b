"""Claims of dynamic resource allocation -> what each pod holds of them, in pieces of time in which its part stays the same.

A claim that several pods hold at once is counted once: each of k pods holds 1/k of it, from the binding of the latest of
them until the first of them ends. When the share changes, an allocation ends and another begins, because the fraction of a
device belongs to what an allocation is. Who holds a claim is told by the pods' own holds, so a bill for a shared claim is as
exact as theirs, whenever the claim itself was read.
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
from metering.allocation import Hold, hold_of
from metering.claims import EXTENDED_RESOURCE_CLAIM, Claim, ClaimError, PodClaims, content_of, devices_of, places_of
from metering.k8s.claim_store import Claimed, ClaimStore, Holder, Part
from metering.k8s.description import UNKNOWN
from metering.k8s.objects import PodFacts, Slice
from metering.k8s.store import PodRow, Store
from metering.k8s.stream import Changes, ListEnds, ListPage
from metering.records import GpuAllocation, RecordError, hold_id

CLAIM_PATIENCE: Final = timedelta(minutes=2)
"""How far the stream of claims must have passed a pod before a claim that it did not tell is taken for missing."""
SHARE_CHANGED: Final = "share of a claim changed"
"""Why a piece ended whose pod went on: others began or ceased to hold the claim too."""


Describe = Callable[[PodFacts, Hold], GpuAllocation]
"""Makes a pod's allocation as it is reported, but for resource, product, quantity and fraction."""


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
    pod: str, start: datetime, end: datetime | None, parts: Sequence[Part], holders: Iterable[Holder]
) -> list[Piece]:
    """A pod's hold [start, end) cut wherever somebody begins or ceases to share one of its claims.

    What a pod holds of one resource and product through several claims is one piece: its fraction is their mean, so that
    quantity times fraction is their sum. Every bound stays a cut, also of those who held for no time: what was told of an
    earlier piece then stays true whatever is learned later.
    """
    holders = list(holders)
    mine = {part.claim for part in parts}
    bounds = {at for item in holders if item.claim in mine for at in (item.start, item.end) if at}
    inside = sorted(at for at in bounds if start < at and (end is None or at < end))
    cuts: list[datetime | None] = [start, *inside, end]
    found = []
    for since, until in pairwise(cuts):
        if since is not None and since != until:
            found += [Piece(*key, since, until) for key in _held(pod, since, parts, holders)]
    return found


def _held(
    pod: str, at: datetime, parts: Sequence[Part], holders: Iterable[Holder]
) -> list[tuple[str, str, int, Fraction]]:
    """Resource, product, units and mean fraction of what a pod holds at an instant."""
    others = [item for item in holders if item.pod != pod and item.start <= at and (item.end is None or at < item.end)]
    sharing = Counter(item.claim for item in others)
    units: dict[tuple[str, str], int] = defaultdict(int)
    devices: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for part in parts:
        key = (part.resource, part.accelerator)
        units[key] += part.quantity
        devices[key] += part.quantity * part.card / (1 + sharing[part.claim])
    return [(*key, quantity, devices[key] / quantity) for key, quantity in sorted(units.items())]


class ClaimBook:
    """Reads the streams of claims and slices, knows what pods hold through them, and makes their allocations.

    `drivers`: drivers of accelerators beyond the table, by vendor.
    """

    def __init__(self, connection: sqlite3.Connection, store: Store, drivers: Mapping[str, str]) -> None:
        self.kept = ClaimStore(connection)
        self._store, self._drivers = store, drivers

    def claims(self, step: ListPage[Claim] | Changes[Claim]) -> None:
        """Keep what claims say for the pods that they are reserved for."""
        found = step.objects if isinstance(step, ListPage) else [event.object for event in step.events]
        seen_at = step.asked_at if isinstance(step, ListPage) else step.received_at
        for claim in found:
            if claim.status is None or not claim.results:
                continue
            version = int(claim.metadata.resource_version or 0)
            self.kept.put_reservations(_billed(claim), version, seen_at)
            if claim.other_consumers:
                (why,) = content_of(claim, PodClaims(), {}).unknown
                self._store.note_problem(f"claim {claim.metadata.namespace}/{claim.metadata.name}", why, seen_at)

    def slices(self, step: ListPage[Slice] | Changes[Slice]) -> None:
        """Keep the devices of slices; what a device was stays known when its slice is gone."""
        found = step.objects if isinstance(step, ListPage) else [item.object for item in step.events if not item.deleted]
        seen_at = step.asked_at if isinstance(step, ListPage) else step.received_at
        for item in found:
            try:
                generation = int(item.spec["pool"].get("generation", 0))
                devices = devices_of([{"metadata": {"name": item.metadata.name}, "spec": item.spec}])
            except (ClaimError, KeyError, TypeError, ValueError, AttributeError) as error:
                self._store.note_problem(f"slice {item.metadata.name}", f"cannot be read: {error!r}"[:300], seen_at)
                continue
            self.kept.put_devices(devices, generation)

    def listed(self, step: ListEnds, keep: timedelta) -> None:
        """A list of claims is complete: what belongs to forgotten pods is dropped."""
        self.kept.forget(step.asked_at - keep)

    def waits(self, uid: str, claims: PodClaims, first_seen: datetime) -> bool:
        """Whether claims of a pod may still be told, so that nothing can be said of it yet."""
        if not claims.counted or self.kept.claimed(uid) is not None:
            return False
        passed = self._store.cursor("claims").synced_at
        return passed is None or passed < first_seen + CLAIM_PATIENCE

    def settle(self, describe: Describe, now: datetime) -> None:
        """Learn what pods hold through claims, of those that the streams have told by now; note who gave them back."""
        for uid in self.kept.unsettled():
            row = self._store.pod(uid)
            hold = hold_of(row.history) if row and row.records is not None else None
            if row is None or hold is None:
                continue
            if self.kept.claimed(uid) is None and not self._resolve(row, hold, describe, now):
                continue
            if row.ending is not None:
                self.kept.end_holds(uid, row.ending.at)
                self.kept.disturb(uid)

    def _resolve(self, row: PodRow, hold: Hold, describe: Describe, now: datetime) -> bool:
        """Whether all claims of the pod and their devices are known. If not after a while, that is a problem."""
        claims, told = row.facts.claims, self.kept.reservations(row.uid)
        unknown = [f"claim {name}: not seen as reserved for the pod" for name in claims.counted if name not in told]
        parts: Counter[tuple[str, str, str, str]] = Counter()
        for name, claim in told.items():
            if name not in claims.counted:
                continue
            content = content_of(claim, claims, self.kept.devices(places_of(claim)), drivers=self._drivers)
            unknown += content.unknown
            uid = claim.metadata.uid
            parts.update((uid, unit.resource, unit.accelerator or UNKNOWN, str(unit.share)) for unit in content.units)
            for driver, count in content.drivers.items():
                self._store.note_unknown(f"dra/{driver}", count, now)
            if self.kept.begin_hold(uid, row.uid, hold.start):
                self.kept.disturb(row.uid)
        try:
            base = describe(row.facts, hold)
        except RecordError as error:
            unknown.append(str(error))
        if unknown:
            if not self.waits(row.uid, claims, row.first_seen):
                self._store.note_problem(f"pod {row.facts.namespace}/{row.facts.name}", "; ".join(unknown), now)
            return False
        held = tuple(Part(claim, resource, product, count, share)
                     for (claim, resource, product, share), count in sorted(parts.items()))  # fmt: skip
        self.kept.put_claimed(row.uid, Claimed(base, held))
        self.kept.disturb(row.uid)
        return True

    def allocations(self, uid: str, end: datetime | None, until: datetime) -> list[tuple[GpuAllocation, bool]]:
        """Allocations of a pod's claims that have news, and whether each is the one in which the pod's hold ends or goes on.

        Pieces that were told with their end stay as they are. A piece that was told and turned out not to be (its share
        was another from its start) is ended where it began.
        """
        claimed = self.kept.claimed(uid)
        if claimed is None:
            return []
        base, told = claimed.base, self.kept.pieces(uid)
        start = base.started_at
        pieces = pieces_of(uid, start, end if end is None else max(end, start), claimed.parts, self.kept.holders(uid))
        made = {record.allocation_id: (record, piece) for piece in pieces for record in [_allocation(base, piece, until)]}
        news = [
            (record, piece.end is None or piece.end == end)
            for name, (record, piece) in made.items()
            if not (name in told and told[name][1] and told[name][0].ended_at == record.ended_at)
        ]
        for name, (record, was_ended) in told.items():
            if name not in made and not was_ended:
                news.append((_ended(record, record.started_at), end is not None and end <= record.started_at))
        self.kept.put_pieces(record for record, _ in news)
        return news


def _allocation(base: GpuAllocation, piece: Piece, until: datetime) -> GpuAllocation:
    fraction = device_fraction(piece.fraction)
    name = f"{piece.resource}@{piece.accelerator}*{fraction:f}"
    record = msgspec.structs.replace(
        base, allocation_id=hold_id(base.cluster, base.pod_uid, name, piece.start), resource=piece.resource,
        quantity=piece.quantity, device_fraction=fraction, accelerator=piece.accelerator, started_at=piece.start,
        observed_until=max(until, piece.start),
    )  # fmt: skip
    return record if piece.end is None else _ended(record, piece.end)


def _ended(record: GpuAllocation, at: datetime) -> GpuAllocation:
    return msgspec.structs.replace(record, ended_at=at, observed_until=at, end_reason=SHARE_CHANGED, end_rule=SHARE_CHANGED)


def _billed(claim: Claim) -> Claim:
    """The claim without annotations that say nothing: a last-applied configuration is large."""
    kept = {EXTENDED_RESOURCE_CLAIM: ""} if claim.hidden else None
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=kept))
