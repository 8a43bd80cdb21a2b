"""What was spent, by the code that bills: lines of a month, sums of days and windows, and what running jobs will cost.

Lines of a closed month are those of its invoices; of an open month those that a close now would make. Their sum is the
`spent` of every budget, so a budget, a preview and an invoice never differ. Days and windows are list prices of usage.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from django.db import connection

from billing.budgets.scope import Scope, Spending
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine
from billing.rates.selectors import rate_card
from billing.rating.assessment import rate_period
from billing.rating.reference_data import ReferenceData
from billing.tenancy.ownership import OwnershipBook
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.selectors import EpochFilter, gpu_sums
from billing.usage.token_sums import token_sums
from metering.intervals import Interval, billing_month
from pricing.money import EXACT
from pricing.rate_card import GPU_HOURS, RateCard, UnpricedError
from pricing.rating import GpuUsage, LineKey, Rated, TokenSum, rate_gpu, rate_tokens

OfTeam = TypeVar("OfTeam", bound=Spending)
PLANNED_END = "suanpan.io/planned-end"
"""A label of a job that says when it plans to end, RFC 3339."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An amount with what it was spent on; `part` numbers the day or window."""

    team: str
    kind: str
    cluster: str
    namespace: str
    consumer: str
    accelerator: str
    sku: str
    amount: Fraction
    part: int = 0
    correction: bool = False


@dataclass(frozen=True, slots=True)
class MonthLines:
    """The lines of one month; `preview` while it is not closed. What the teams `unrated` owe is unknown."""

    lines: list[Spent]
    preview: bool
    unrated: frozenset[str] = frozenset()


def month_lines(month: str, zone: str) -> MonthLines:
    """Every line that is or would be invoiced for the month; the platform's own use is nobody's spending."""
    period = BillingPeriod.objects.filter(month=month).first()
    if period is not None and period.status == BillingPeriod.Status.CLOSED:
        return MonthLines(_invoiced(period), preview=False)
    window = Interval(period.start, period.end) if period else billing_month(month, zone)
    zone, ordinal = (period.zone, period.ordinal) if period else (zone, None)
    assessment = rate_period(window=window, zone=zone, ordinal=ordinal, isolate=True)
    charges = [charge for charge in assessment.charges if not charge.key.platform]
    lines = [_line(line.charge.key, line.amount) for line in invoice_lines(charges)]
    return MonthLines(lines, preview=True, unrated=frozenset(assessment.faults))


def _invoiced(period: BillingPeriod) -> list[Spent]:
    live = InvoiceLine.objects.filter(invoice__period=period).exclude(invoice__status=Invoice.Status.VOID)
    rows = live.values_list(
        "invoice__team__code", "kind", "cluster", "namespace", "consumer", "accelerator", "sku", "amount",
        "correction",
    )  # fmt: skip
    return [Spent(*row[:7], Fraction(row[7]), correction=row[8]) for row in rows.iterator()]


def _line(key: LineKey, amount: Decimal) -> Spent:
    return Spent(
        key.team, key.kind, key.cluster, key.namespace, key.consumer, key.accelerator, key.sku, Fraction(amount),
        correction=key.correction,
    )  # fmt: skip


def spent_in(parts: Sequence[Interval], *, card: RateCard | None = None) -> list[Spent]:
    """Usage at list price per part; parts follow each other without a gap. Unowned and unpriced usage is nobody's.

    `card`: other prices than those that were in force.
    """
    if not parts:
        return []
    window = Interval(parts[0].start, parts[-1].end)
    namespaces, consumers, card = namespace_book(), consumer_book(), card or rate_card()
    starts = [part.start for part in parts]
    gpu = _gpu_usage(window.cut({*card.changes(), *namespaces.changes(), *starts}), namespaces, starts)
    pieces = window.cut({*card.changes(), *consumers.changes(), *starts})
    tokens = _token_usage(pieces, card, consumers, starts)
    return [*_rated(gpu, lambda usages: rate_gpu(usages, card)), *_rated(tokens, lambda usages: rate_tokens(usages, card))]


def spent_under(scope: Scope, window: Interval, reference_data: ReferenceData) -> Fraction:
    """What a scope used in a window at list price, as one sum: what the same price is for is rated together.

    List prices are per unit and nothing is rounded here, so the sum is that of `spent_in` without its thousand parts.
    """
    places, starts, everything = replace(scope, accelerator=""), [window.start], scope.is_everything
    pieces = window.cut({*reference_data.card.changes(), *reference_data.namespaces.changes()})
    devices: dict[tuple[str, str, datetime], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for usage in _gpu_usage(pieces, reference_data.namespaces, starts).get(0, ()):
        if usage.team in scope.teams and (everything or places.covers(_of_devices(usage))):
            sums = devices[usage.accelerator, usage.resource, usage.at]
            sums[:] = EXACT.add(sums[0], usage.device_us), EXACT.add(sums[1], usage.unit_us)
    pieces = window.cut({*reference_data.card.changes(), *reference_data.consumers.changes()})
    tokens: dict[tuple[str, datetime], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for item in _token_usage(pieces, reference_data.card, reference_data.consumers, starts).get(0, ()):
        if item.team in scope.teams and (everything or scope.covers(_of_tokens(item))):
            counts = tokens[item.model, item.at]
            for token_class, count in item.tokens.items():
                counts[token_class] += count
    gpu = [
        GpuUsage("", False, "", "", accelerator, resource, at, *sums, "")
        for (accelerator, resource, at), sums in devices.items()
    ]
    charges = [
        charge
        for charge in rate_gpu(gpu, reference_data.card).charges
        if scope.accelerator in ("", charge.key.accelerator, charge.key.sku)
    ]
    charges += rate_tokens(
        [TokenSum("", "", *name, counts, "") for name, counts in tokens.items()], reference_data.card
    ).charges
    return sum((charge.quantity * Fraction(charge.unit_price) for charge in charges), Fraction(0))


def _of_devices(usage: GpuUsage) -> Spent:
    return Spent(usage.team, "gpu", usage.cluster, usage.namespace, "", usage.accelerator, "", Fraction(0))


def _of_tokens(item: TokenSum) -> Spent:
    return Spent(item.team, "tokens", "", "", item.consumer, "", item.model, Fraction(0))


def _gpu_usage(pieces: Sequence[Interval], book: OwnershipBook, starts: list[datetime]) -> dict[int, list[GpuUsage]]:
    found: dict[int, list[GpuUsage]] = defaultdict(list)
    for item in gpu_sums(pieces, EpochFilter()):
        at = pieces[item.piece].start
        owner = book.owner(item.cluster, item.namespace, at)
        if owner is not None and not owner.platform:
            usage = GpuUsage(
                owner.team, False, item.cluster, item.namespace, item.accelerator, item.resource, at, item.device_us,
                item.unit_us, "",
            )  # fmt: skip
            found[bisect_right(starts, at) - 1].append(usage)
    return found


def _token_usage(
    pieces: Sequence[Interval], card: RateCard, book: OwnershipBook, starts: list[datetime]
) -> dict[int, list[TokenSum]]:
    found: dict[int, list[TokenSum]] = defaultdict(list)
    bounds = [card.context_bounds(piece.start) for piece in pieces]
    for item in token_sums(pieces, EpochFilter(), bounds):
        at = pieces[item.piece].start
        owner = book.owner(item.source, item.consumer, at)
        if owner is not None:
            usage = TokenSum(owner.team, item.consumer, item.model, at, item.by_class, "")
            found[bisect_right(starts, at) - 1].append(usage)
    return found


def _rated(usage_by_part: Mapping[int, list[Any]], rate: Callable[[list[Any]], Rated]) -> list[Spent]:
    spent: list[Spent] = []
    for part, usages in sorted(usage_by_part.items()):
        sums: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
        for charge in rate(usages).charges:
            key = charge.key
            what = (key.team, key.kind, key.cluster, key.namespace, key.consumer, key.accelerator, key.sku)
            sums[what] += charge.quantity * Fraction(charge.unit_price)
        spent += [Spent(*what, amount, part) for what, amount in sums.items()]
    return spent


@dataclass(frozen=True, slots=True)
class Running:
    """One open hold of devices: what an hour of it costs, until when it is known and when it is expected to end.

    `device` and `resource`: as reported, `units` of it, each so much of a device; `accelerator` and `sku`: of its price.
    """

    team: str
    kind: str
    cluster: str
    namespace: str
    consumer: str
    accelerator: str
    sku: str
    per_hour: Fraction
    known_until: datetime
    ends: datetime
    device: str
    resource: str
    units: Decimal
    device_fraction: Decimal

    @property
    def ahead(self) -> Interval | None:
        """The time that it is expected to go on for beyond what was reported."""
        return Interval(self.known_until, self.ends) if self.ends > self.known_until else None

    def cost_in(self, window: Interval) -> Fraction:
        """What it is expected to cost in the window beyond what was reported, at list price."""
        ahead = self.ahead.overlap(window) if self.ahead else None
        return Fraction(ahead.microseconds, 3_600_000_000) * self.per_hour if ahead else Fraction(0)


def running_jobs(now: datetime, reference_data: ReferenceData | None = None) -> list[Running]:
    """Open holds with an owner and a price, at the price of now.

    A job that says when it plans to end (label suanpan.io/planned-end) is expected to do so; any other is expected to
    go on for as long again as it ran, the usual guess where nothing but an age is known.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT cluster, namespace, accelerator, resource, quantity, device_fraction, started_at, observed_until,
                      facts -> 'labels' ->> %s
               FROM usage_gpuallocation WHERE ended_at IS NULL AND NOT from_file AND started_at < %s""",
            [PLANNED_END, now],
        )
        rows = cursor.fetchall()
    book, card = (
        (namespace_book(), rate_card()) if reference_data is None else (reference_data.namespaces, reference_data.card)
    )
    return [found for row in rows if (found := _running(row, book, card, now)) is not None]


def _running(row: tuple[Any, ...], book: OwnershipBook, card: RateCard, now: datetime) -> Running | None:
    cluster, namespace, accelerator, resource, quantity, fraction, started, observed, planned = row
    owner = book.owner(cluster, namespace, now)
    if owner is None or owner.platform:
        return None
    try:
        _, price = card.gpu_price(accelerator, resource, now)
    except UnpricedError:
        return None
    units = Fraction(quantity) * (Fraction(fraction) if price.unit == GPU_HOURS else 1)
    ends = _planned(planned) or observed + (observed - started)
    what = (owner.team, "gpu", cluster, namespace, "", price.accelerator, price.sku)
    per_hour = units * Fraction(price.price)
    return Running(*what, per_hour, observed, ends, accelerator, resource, Decimal(quantity), fraction)


def _planned(text: str | None) -> datetime | None:
    try:
        planned = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return planned.astimezone(UTC) if planned.tzinfo else None


def by_team(items: Iterable[OfTeam]) -> dict[str, list[OfTeam]]:
    """The same by team, so that a budget looks only at what its teams spend."""
    found: dict[str, list[OfTeam]] = defaultdict(list)
    for item in items:
        found[item.team].append(item)
    return found


def covered(items: Mapping[str, Iterable[OfTeam]], scope: Scope) -> list[OfTeam]:
    """What of it the scope covers."""
    return [item for team in scope.teams for item in items.get(team, ()) if scope.covers(item)]


def encumbered(jobs: Iterable[Running], window: Interval) -> Fraction:
    """What the jobs are expected to cost in the window, at list price."""
    return sum((job.cost_in(window) for job in jobs), Fraction(0))


def local_days(first: datetime, until: datetime, zone: str) -> list[Interval]:
    """Whole local days from the one that contains `first` up to, and not with, the one that contains `until`."""
    where = ZoneInfo(zone)
    day, last = first.astimezone(where).date(), until.astimezone(where).date()
    midnights = [day + timedelta(days=number) for number in range((last - day).days + 1)]
    bounds = [datetime(at.year, at.month, at.day, tzinfo=where) for at in midnights]
    return [Interval(lo, hi) for lo, hi in pairwise(bounds)]
