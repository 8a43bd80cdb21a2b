"""Which usage of a month the commitments of teams pay for, as the close that billed it saw it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.rating.interruptions import interrupted_usage
from billing.rating.reference_data import ReferenceData
from billing.usage.models import Close
from billing.usage.selectors import EpochFilter, GpuSum, gpu_sums
from metering.intervals import Interval
from pricing.commitments import Cover, cover, used_of
from pricing.money import EXACT
from pricing.rating import GpuUsage, InterruptedUsage


@dataclass(frozen=True, slots=True)
class Slice:
    """The usage of a month that one close bills: its own, or (`correction`) what came late."""

    window: Interval
    pieces: Sequence[Interval]
    month: str
    epochs: EpochFilter
    correction: bool


def owned_usage(reference_data: ReferenceData, part: Slice, sums: Iterable[GpuSum]) -> list[GpuUsage]:
    """Device usage that somebody owns, as rating takes it."""
    found = []
    for item in sums:
        at = part.pieces[item.piece].start
        owner = reference_data.namespaces.owner(item.cluster, item.namespace, at)
        if owner is not None:
            found.append(
                GpuUsage(
                    owner.team, owner.platform, item.cluster, item.namespace, item.accelerator, item.resource, at,
                    item.device_us, item.unit_us, part.month, part.correction,
                )
            )  # fmt: skip
    return found


def covered_usage(
    reference_data: ReferenceData, part: Slice, owned: Sequence[GpuUsage], interrupted: Iterable[InterruptedUsage]
) -> Cover:
    """Owned usage parted into what commitments pay for and the rest."""
    if not reference_data.commitments.of_month(part.window):
        return Cover(rest=list(owned))
    before = _used_before(reference_data, part) if part.correction else None
    carried = [item.usage for item in interrupted]
    return cover(
        owned,
        carried,
        reference_data.commitments,
        reference_data.card,
        window=part.window,
        month=part.month,
        used_before=before,
    )


def _used_before(reference_data: ReferenceData, late: Slice) -> dict[str, Decimal]:
    """What the closes before saw of the month: its own close, and each that billed late usage of it."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    standing = Close.objects.filter(withdrawn_at=None)
    own = standing.get(start=late.window.start).ordinal
    closings = standing.filter(ordinal__gte=own, ordinal__lt=late.epochs.before).order_by("ordinal")
    first = 0
    for closing in closings.values_list("ordinal", flat=True):
        epochs, first = EpochFilter(before=closing, first=first), closing
        part = Slice(late.window, late.pieces, late.month, epochs, late.correction)
        owned = owned_usage(reference_data, part, gpu_sums(part.pieces, epochs))
        carried = interrupted_usage(part.pieces, epochs, reference_data, late.month, correction=True)
        used = used_of(owned, [item.usage for item in carried], reference_data.commitments, reference_data.card)
        for name, quantity in used.items():
            sums[name] = EXACT.add(sums[name], quantity)
    return dict(sums)
