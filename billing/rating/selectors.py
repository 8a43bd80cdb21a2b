"""All reads of rating: the books as a close knew them, changes of facts of closed time, and the parts of a month billed."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet

from billing.rates.selectors import CarbonBook, PolicyBook, commitment_book, rate_card
from billing.rating.models import PoolTime, RetroactiveChange
from billing.rating.reference_data import ReferenceData
from billing.rating.retroactive import CorrectedOwnershipBook, CorrectedRateCard, PriceCorrection
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.models import Close
from billing.usage.selectors import last_sample, late_windows
from metering.intervals import Interval
from pricing.rate_card import RateCard

Kind = RetroactiveChange.Kind


def reference_data_known(closing: int) -> ReferenceData:
    """Owners, prices and policies as the `closing`-th close knew them (or, one beyond the last, as they are now)."""
    return replace(reference_data_with(changes_known(closing)), closing=closing)


def changes_known(closing: int) -> list[RetroactiveChange]:
    """The changes that were approved before a close, in the order of their approval."""
    return list(RetroactiveChange.objects.filter(epoch__lt=closing).order_by("ordinal"))


def changes_through(ordinal: int) -> list[RetroactiveChange]:
    """The changes up to the `ordinal`-th, in the order of their approval."""
    return list(RetroactiveChange.objects.filter(ordinal__lte=ordinal).order_by("ordinal"))


def last_change(changes: list[RetroactiveChange]) -> int:
    """Ordinal of the last of some approved changes, 0 for none."""
    return max((change.ordinal or 0 for change in changes), default=0)


def reference_data_with(
    changes: list[RetroactiveChange], owners: tuple[OwnershipBook, OwnershipBook] | None = None,
    card: RateCard | None = None,
) -> ReferenceData:  # fmt: skip
    """The published facts under some changes, the later ones on top. `owners` and `card` where they are read already."""
    namespaces, consumers = owners or (namespace_book(), consumer_book())
    of_kind = {kind: [change for change in changes if change.kind == kind] for kind in Kind}
    return ReferenceData(
        CorrectedOwnershipBook(namespaces, [ownership_row(change) for change in of_kind[Kind.NAMESPACE]]),
        CorrectedOwnershipBook(consumers, [ownership_row(change) for change in of_kind[Kind.CONSUMER]]),
        CorrectedRateCard((card or rate_card()).versions, [price_correction(change) for change in of_kind[Kind.PRICE]]),
        PolicyBook(),
        CarbonBook(),
        [(Interval(change.valid_from, change.valid_until), _samples_of(change)) for change in of_kind[Kind.EFFICIENCY]],
        commitment_book(),
    )


def _samples_of(change: RetroactiveChange) -> int:
    """The last sample that a change lets count; before its approval the last there is."""
    return last_sample() if change.last_sample is None else change.last_sample


def ownership_row(change: RetroactiveChange) -> OwnershipRow:
    """The owner that a change says."""
    fact = change.fact
    return OwnershipRow(fact["scope"], fact["name"], Owner(fact["team"]), change.valid_from, change.valid_until)


def price_correction(change: RetroactiveChange) -> PriceCorrection:
    """The prices that a change says."""
    return PriceCorrection(
        change.name, change.valid_from, change.valid_until,
        gpu={(item["accelerator"], item["resource"]): Decimal(item["price"]) for item in change.fact["gpu"]},
        tokens={(item["model"], item["token_class"]): Decimal(item["price"]) for item in change.fact["tokens"]},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BilledSlice:
    """What the `closing`-th close billed of a closed window: its own usage, or (`correction`) what came late."""

    window: Interval
    closing: int
    correction: bool


def billed_slices(valid_from: datetime, valid_until: datetime, through: int) -> list[BilledSlice]:
    """The slices of usage billed by the closes up to the `through`-th that overlap a stretch of time."""
    closed = list(
        _standing().filter(ordinal__lte=through, start__lt=valid_until, end__gt=valid_from).order_by("ordinal")
    )
    mine = {window.ordinal for window in closed}
    slices = [BilledSlice(Interval(row.start, row.end), row.ordinal, correction=False) for row in closed]
    after = _standing().filter(ordinal__gt=min(mine, default=through), ordinal__lte=through).order_by("ordinal")
    for closing in after.values_list("ordinal", flat=True):
        slices += [
            BilledSlice(Interval(late.start, late.end), closing, correction=True)
            for late in late_windows(closing)
            if late.ordinal in mine
        ]
    return slices


def pool_times(closing: int) -> dict[tuple[str, str], PoolTime]:
    """What became of the time of each pool (cluster, accelerator), as the `closing`-th close saw it.

    Empty where no device was held, and of a close that an older release made.
    """
    return {(row.cluster, row.accelerator): row for row in PoolTime.objects.filter(closing=closing)}


def closed_until() -> datetime | None:
    """The end of the last closed window; None before any close."""
    last = _standing().order_by("-end").first()
    return last.end if last else None


def closings_withdrawn() -> list[int]:
    """Ordinals of the closes that were taken back: what they charged is nobody's bill."""
    return list(Close.objects.exclude(withdrawn_at=None).values_list("ordinal", flat=True))


def _standing() -> QuerySet[Close]:
    return Close.objects.filter(withdrawn_at=None)


def changes_all() -> list[RetroactiveChange]:
    """Every change of closed time, the newest first."""
    return list(RetroactiveChange.objects.select_related("proposal").prefetch_related("proposal__steps").order_by("-id"))
