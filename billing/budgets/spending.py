"""Spending, by the code that bills: lines of a month, sums of days and windows, and expected cost of running jobs.

Lines of a closed month are those of its invoices; of an open month those that a close now would make. Their sum is the
`spent` of every budget, so a budget, a preview and an invoice never differ. Days and windows are list prices of usage.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from django.db.models import Q

from billing.budgets.group_times import Moves, lines_by_time
from billing.budgets.scope import Scope, Spending
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine
from billing.invoices.selectors import known_before, unbuilt_drafts
from billing.rates.selectors import rate_card
from billing.rating.gathering import is_gathered, used_in_close
from billing.rating.grains import Grain
from billing.rating.reference_data import ReferenceData
from billing.rating.retroactive import CorrectedRateCard
from billing.rating.selectors import reference_data_known
from billing.rating.snapshots import rated_now
from billing.rating.walk import Slice, listed_usage
from billing.runtime.parallel_reads import rows_read
from billing.tenancy.ownership import OwnershipBook
from billing.tenancy.selectors import namespace_book
from billing.usage.scope import EpochFilter
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval, billing_month, midnights
from metering.record_checks import EARLIEST, LATEST
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import EXACT
from pricing.rate_card import GPU_HOURS, RateCard, UnpricedError
from pricing.rating import DIVISOR, LineKey

OfTeam = TypeVar("OfTeam", bound=Spending)
PLANNED_END = "suanpan.io/planned-end"
"""Label of a job with the instant at which it plans to end, RFC 3339."""
NOTHING = Decimal(0)
NO_MOVES: Moves = {}
What = tuple[str, str, str, str, str, str, str]
"""Kind, team, cluster, namespace, consumer, accelerator and SKU."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An amount with what it was spent on; `part` numbers the day or window.

    since: of a team that changes its group, the instant from which this part of the line was used.
    """

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
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class MonthLines:
    """Lines of one month; `preview` while it is not closed. The amounts of the teams `unrated` are unknown."""

    lines: list[Spent]
    preview: bool
    unrated: frozenset[str] = frozenset()


def month_lines(month: str, zone: str, moves: Moves = NO_MOVES) -> MonthLines:
    """Return every line that is or would be invoiced for the month; the platform's own use is nobody's spending.

    moves: lines of these teams are split at the instants at which they change their group.
    """
    period = BillingPeriod.objects.filter(month=month).first()
    if period is not None and period.status == BillingPeriod.Status.CLOSED:
        return MonthLines(_invoiced(period, moves), preview=False)
    if period is None:
        window = billing_month(month, zone)
        period = BillingPeriod(month=month, start=window.start, end=window.end, zone=zone)
    assessment = rated_now(month=month, window=period.window, zone=period.zone, close_seq=period.close_seq)
    charges = [charge for charge in assessment.charges if not charge.key.platform]
    amounts = {line.charge.key: Fraction(line.amount) for line in invoice_lines(charges)}
    return MonthLines(_by_time(amounts, period, moves), preview=True, unrated=frozenset(assessment.faults))


def _by_time(amounts: Mapping[LineKey, Fraction], period: BillingPeriod, moves: Moves) -> list[Spent]:
    """Return the spending on lines by consumer; lines of teams that change their group are split by time before."""
    staying = {key: amount for key, amount in amounts.items() if key.team not in moves}
    found = _by_consumer(staying, period)
    for part in lines_by_time({key: amounts[key] for key in amounts.keys() - staying.keys()}, period, moves):
        found += [replace(item, since=part.since) for item in _by_consumer({part.key: part.amount}, period)]
    return found


def _by_consumer(amounts: Mapping[LineKey, Fraction], period: BillingPeriod) -> list[Spent]:
    """Return the spending on lines; a gathered line is split into the spending of each consumer."""
    gathered = [key for key in amounts if is_gathered(key)]
    used = used_in_close(gathered, period.window, period.zone, known_before(period)) if gathered else {}
    found: list[Spent] = []
    for key, amount in amounts.items():
        # a line whose tokens are not found stays whole: its amount must not get lost
        parts = used.get(key) or {key.consumer: NOTHING + 1}
        whole = Fraction(sum(parts.values(), NOTHING))
        found += [spent_on(key.changed(consumer=name), amount * Fraction(part) / whole) for name, part in parts.items()]
    return found


def _invoiced(period: BillingPeriod, moves: Moves) -> list[Spent]:
    """Return the invoiced lines of a period, voided drafts without a successor included: the money is spent all the same."""
    kept = ~Q(invoice__status=Invoice.Status.VOID) | Q(invoice__in=[draft.pk for draft in unbuilt_drafts(period)])
    stored = InvoiceLine.objects.filter(kept, invoice__period=period)
    with_keys = Q(kind="tokens", consumer="") | Q(invoice__team__code__in=list(moves))
    rows = stored.exclude(with_keys).values_list(
        "invoice__team__code", "kind", "cluster", "namespace", "consumer", "accelerator", "sku", "amount",
        "correction",
    )  # fmt: skip
    found = [Spent(*row[:7], Fraction(row[7]), correction=row[8]) for row in rows.iterator()]
    amounts: dict[LineKey, Fraction] = defaultdict(Fraction)
    for row in stored.filter(with_keys).select_related("invoice__team"):
        amounts[LineKey.of(row, team=row.invoice.team.code, platform=False)] += Fraction(row.amount)
    return found + _by_time(amounts, period, moves)


def spent_on(key: LineKey, amount: Fraction) -> Spent:
    """Return an amount as spending on a line of a close."""
    return Spent(
        key.team, key.kind, key.cluster, key.namespace, key.consumer, key.accelerator, key.sku, amount,
        correction=key.correction,
    )  # fmt: skip


def spent_in(parts: Sequence[Interval], *, card: CorrectedRateCard | None = None) -> list[Spent]:
    """Return usage at list price per part; parts are contiguous. Unowned and unpriced usage is left out.

    `card`: other prices than those that were in force.
    """
    if not parts:
        return []
    reference_data = reference_data_known(last_close_seq() + 1)
    if card is not None:
        reference_data = replace(reference_data, card=card)
    starts = [part.start for part in parts]
    whole = Slice.of(reference_data, Interval(parts[0].start, parts[-1].end), "", EpochFilter())
    sums: dict[tuple[int, What, str], Decimal] = {}
    for item in listed_usage(whole, reference_data, Grain.DAY, cuts=starts):
        if not item.quantity:
            continue
        key, part = item.key, bisect_right(starts, item.place.start or starts[0]) - 1
        what = (key.kind, key.team, key.cluster, key.namespace, key.consumer, key.accelerator, key.sku)
        name, amount = (part, what, key.unit), EXACT.multiply(item.quantity, item.price)
        sums[name] = EXACT.add(sums.get(name, NOTHING), amount)
    found: dict[tuple[int, What], Fraction] = defaultdict(Fraction)
    for (part, what, unit), amount in sums.items():
        found[part, what] += Fraction(amount) / DIVISOR[unit]
    return [
        Spent(team, kind, cluster, namespace, consumer, accelerator, sku, amount, part)
        for (part, (kind, team, cluster, namespace, consumer, accelerator, sku)), amount in sorted(found.items())
    ]


@dataclass(frozen=True, slots=True)
class Running:
    """One open allocation: its cost per hour, the end of its reported time, and its expected end.

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
        """Return the time that the job is expected to continue beyond what was reported."""
        return Interval(self.known_until, self.ends) if self.ends > self.known_until else None

    def cost_in(self, window: Interval) -> Fraction:
        """Return the expected cost in the window beyond what was reported, at list price."""
        ahead = self.ahead.overlap(window) if self.ahead else None
        return Fraction(ahead.microseconds, MICROSECONDS_PER_HOUR) * self.per_hour if ahead else Fraction(0)


def running_jobs(now: datetime, reference_data: ReferenceData | None = None) -> list[Running]:
    """Return open allocations with an owner and a price, at the current price.

    A job with a planned end (label suanpan.io/planned-end) is expected to keep it; any other is expected to
    continue for as long again as it ran, the usual guess if only an age is known.
    """
    rows = rows_read(
        """SELECT cluster, namespace, accelerator, resource, quantity, device_fraction, started_at, observed_until,
                  facts -> 'labels' ->> %(label)s
           FROM usage_gpuallocation WHERE ended_at IS NULL AND NOT from_file AND started_at < %(now)s""",
        {"label": PLANNED_END, "now": now},
    )
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
    # a price per device counts the fraction of a device, a price per slice counts slices
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
    # a label may contain any date: intervals beyond these bounds would overflow
    return max(EARLIEST, min(planned, LATEST)).astimezone(UTC) if planned.tzinfo else None


def by_team(items: Iterable[OfTeam]) -> dict[str, list[OfTeam]]:
    """Group items by team, so that a budget reads only the spending of its teams."""
    found: dict[str, list[OfTeam]] = defaultdict(list)
    for item in items:
        found[item.team].append(item)
    return found


def covered(items: Mapping[str, Iterable[OfTeam]], scope: Scope) -> list[OfTeam]:
    """Return the items of the scope's teams that the scope covers."""
    return [item for team in scope.teams for item in items.get(team, ()) if scope.covers(item)]


def local_days(first: datetime, until: datetime, zone: str) -> list[Interval]:
    """Return the local days from the one that contains `first` up to, but not including, the one that contains `until`."""
    return [Interval(lo, hi) for lo, hi in pairwise(midnights(first, until, zone))]
