"""Reads of rating: reference data as a close knew them, retroactive changes, and what closes billed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet

from billing.rates.selectors import CarbonBook, PolicyBook, commitment_book, rate_card
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import PoolTime, RetroactiveChange
from billing.rating.reference_data import ReferenceData
from billing.rating.retroactive import CorrectedOwnershipBook, CorrectedRateCard, PriceCorrection
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.models import Close
from billing.usage.selectors import last_sample, late_windows
from metering.intervals import Interval
from pricing.rate_card import RateCard
from pricing.rating import Charge, LineKey

Kind = RetroactiveChange.Kind


def reference_data_known(close_seq: int) -> ReferenceData:
    """Return owners, prices and policies as close `close_seq` knew them (one beyond the last: as they are now)."""
    return replace(reference_data_with(changes_known(close_seq)), close_seq=close_seq)


def changes_known(close_seq: int) -> list[RetroactiveChange]:
    """Return the changes that were approved before a close, in the order of their approval."""
    return list(RetroactiveChange.objects.filter(epoch__lt=close_seq).order_by("change_seq"))


def changes_through(change_seq: int) -> list[RetroactiveChange]:
    """Return the changes up to number `change_seq`, in the order of their approval."""
    return list(RetroactiveChange.objects.filter(change_seq__lte=change_seq).order_by("change_seq"))


def last_change(changes: list[RetroactiveChange]) -> int:
    """Return the highest `change_seq` of some approved changes, 0 for none."""
    return max((change.change_seq or 0 for change in changes), default=0)


def reference_data_with(
    changes: list[RetroactiveChange], owners: tuple[OwnershipBook, OwnershipBook] | None = None,
    card: RateCard | None = None,
) -> ReferenceData:  # fmt: skip
    """Return the published facts under some changes, later ones on top; `owners` and `card` if they are read already."""
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
    """Return the last sample that a change lets count; before its approval the last stored one."""
    return last_sample() if change.last_sample is None else change.last_sample


def ownership_row(change: RetroactiveChange) -> OwnershipRow:
    fact = change.fact
    return OwnershipRow(fact["scope"], fact["name"], Owner(fact["team"]), change.valid_from, change.valid_until)


def price_correction(change: RetroactiveChange) -> PriceCorrection:
    return PriceCorrection(
        change.name, change.valid_from, change.valid_until,
        gpu={(item["accelerator"], item["resource"]): Decimal(item["price"]) for item in change.fact["gpu"]},
        tokens={(item["model"], item["token_class"]): Decimal(item["price"]) for item in change.fact["tokens"]},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BilledSlice:
    """Usage that close `close_seq` billed of a closed window: its own, or (`correction`) late usage."""

    window: Interval
    close_seq: int
    correction: bool


def billed_slices(valid_from: datetime, valid_until: datetime, through: int) -> list[BilledSlice]:
    """Return the slices of usage billed by closes up to number `through` that overlap [valid_from, valid_until)."""
    closed = list(
        _active_closes().filter(close_seq__lte=through, start__lt=valid_until, end__gt=valid_from).order_by("close_seq")
    )
    mine = {window.close_seq for window in closed}
    slices = [BilledSlice(Interval(row.start, row.end), row.close_seq, correction=False) for row in closed]
    # late usage of these windows may be in any later close
    after = _active_closes().filter(close_seq__gt=min(mine, default=through), close_seq__lte=through).order_by("close_seq")
    for close_seq in after.values_list("close_seq", flat=True):
        slices += [
            BilledSlice(Interval(late.start, late.end), close_seq, correction=True)
            for late in late_windows(close_seq)
            if late.close_seq in mine
        ]
    return slices


def charges_of_close(close_seq: int, teams: Iterable[str]) -> list[Charge]:
    """Return the charges that a close wrote for some teams, without emissions, which are not stored."""
    rows = ChargeRow.objects.filter(close_seq=close_seq, team__in=list(teams)).order_by("id")
    fields = (*LineKey.__struct_fields__, "usage_quantity", "unit_price", "facility_kw")
    return [Charge(LineKey(*row[:-3]), *row[-3:]) for row in rows.values_list(*fields).iterator()]


def pool_times(close_seq: int) -> dict[tuple[str, str], PoolTime]:
    """Return the time of each pool (cluster, accelerator) by outcome, as close `close_seq` saw it.

    Empty if no device was allocated, and for closes that an older release made.
    """
    return {(row.cluster, row.accelerator): row for row in PoolTime.objects.filter(close_seq=close_seq)}


def closed_until() -> datetime | None:
    """Return the end of the last closed window; None before any close."""
    last = _active_closes().order_by("-end").first()
    return last.end if last else None


def closed_window_around(instant: datetime) -> Interval | None:
    """Return the closed window that an instant cuts in two, or None."""
    row = _active_closes().filter(start__lt=instant, end__gt=instant).first()
    return None if row is None else Interval(row.start, row.end)


def withdrawn_closes() -> list[int]:
    """Return the numbers of withdrawn closes, whose charges bill nobody."""
    return list(Close.objects.exclude(withdrawn_at=None).values_list("close_seq", flat=True))


def _active_closes() -> QuerySet[Close]:
    return Close.objects.filter(withdrawn_at=None)


def changes_all() -> list[RetroactiveChange]:
    """Return every retroactive change, the newest first."""
    return list(RetroactiveChange.objects.select_related("proposal").prefetch_related("proposal__steps").order_by("-id"))
