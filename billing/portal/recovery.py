"""Recovery of the cost of compute by what is billed: each pool, tokens against the platform's own use, by month.

A pool is the devices of one accelerator in one cluster. Its cost is the time its nodes offered (if that is unknown, or
less than the allocated time: the allocated time) times the cost of an hour by the sheet behind the price in force, without
the uplift for unsold hours and the reserve, since idle hours are counted here as they were. As in the sheet, an idle hour
takes no energy. Late usage of earlier months is in no pool.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

from django.db.models import Q, QuerySet, Sum

from billing.invoices.line_rollups import Charged
from billing.invoices.lines import hours_shown
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, InvoiceSums
from billing.invoices.selectors import known_before
from billing.portal.selectors import OpenMonth, notes_by_month
from billing.portal.statements import MonthFacets
from billing.rates.models import CostSheet, GpuPrice, TokenPrice
from billing.rates.selectors import interruption_rules
from billing.rating.assessment import DeviceTime, rate_period
from billing.rating.models import PoolTime
from billing.rating.selectors import pool_times
from billing.tenancy.models import Team
from billing.usage.queries import carried_time, gpu_time
from billing.usage.scope import EpochFilter
from billing.usage.selectors import capacity_sums
from metering.accelerators import device_share
from metering.intervals import Interval, previous_month
from pricing.meters import SECTIONS, Explanation, line_kind
from pricing.money import round_amount, round_to, split_amount
from pricing.tco import BEYOND_AN_INSTALLED_HOUR, VARIABLE
from pricing.token_contexts import figures_by_class

ZERO = Decimal("0.00")
OF_USED_HOURS = (*BEYOND_AN_INSTALLED_HOUR, *VARIABLE)
MONTHS_COMPARED = 12


@dataclass(frozen=True, slots=True)
class Pool:
    """Pool in hours, with its cost and its bills; `idle` and `offered` are None if no node reported its capacity."""

    cluster: str
    accelerator: str
    charged: Decimal
    platform: Decimal
    left: Decimal
    idle: Decimal | None
    offered: Decimal | None
    hour_cost: Decimal | None
    cost: Decimal | None
    platform_cost: Decimal | None
    billed: Decimal

    @property
    def recovered(self) -> Decimal | None:
        """Return billed over cost; None if the cost is unknown."""
        return self.billed / self.cost if self.cost else None

    @property
    def used(self) -> Decimal | None:
        return (self.charged + self.platform) / self.offered if self.offered else None


@dataclass(frozen=True, slots=True)
class TokenPool:
    """Sum of all tokens against the cost of the platform's own use; `cost` is None if any of it is unknown."""

    billed: Decimal
    cost: Decimal | None

    @property
    def recovered(self) -> Decimal | None:
        return self.billed / self.cost if self.cost else None


@dataclass(frozen=True, slots=True)
class TokenMargin:
    """Class of tokens of a model: mean price of a million billed, and its cost by the sheet behind the price."""

    model: str
    token_class: str
    millions: Decimal
    billed: Decimal
    price: Decimal
    cost: Decimal | None

    @property
    def margin(self) -> Decimal | None:
        """Return the price less the cost, as a share of the price."""
        return None if self.cost is None or not self.price else (self.price - self.cost) / self.price


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of one month. `unpooled`: billed for devices, but of no one pool; `late`: billed for earlier months."""

    pools: list[Pool]
    tokens: TokenPool
    margins: list[TokenMargin]
    unpooled: Decimal
    late: Decimal

    @property
    def billed(self) -> Decimal:
        return sum((pool.billed for pool in self.pools), self.tokens.billed + self.unpooled)

    @property
    def of_pools(self) -> Decimal:
        return sum((pool.billed for pool in self.pools), ZERO)

    @property
    def hours(self) -> dict[str, Decimal | None]:
        """Return charged, idle and offered hours of all pools; None if those of one are unknown."""
        columns = {name: [getattr(pool, name) for pool in self.pools] for name in ("charged", "idle", "offered")}
        return {name: None if None in column else sum(column, Decimal(0)) for name, column in columns.items()}

    @property
    def cost(self) -> Decimal | None:
        """Return the cost of all pools; None if one is unknown: a part would look like more recovery than there is."""
        return _sum_known([pool.cost for pool in self.pools])

    @property
    def recovered(self) -> Decimal | None:
        return self.billed / self.cost if self.cost else None


def recovery_of(period: BillingPeriod, month: MonthFacets) -> Recovery:
    times = _device_time(period, month)
    lines = [line for line in month.charged if not line.key.correction]
    offered = _offered(period.window)
    names = sorted({*offered, *times})
    billed = _billed(lines, period, {*names})
    costs = _hour_costs(period)
    pools = [
        _pool(name, times.get(name, DeviceTime()), offered.get(name), costs.get(name[1]), billed[name])
        for name in names
    ]
    of_platform = [pool.platform_cost for pool in pools if pool.platform]
    tokens = TokenPool(sum((line.amount for line in lines if line.key.counts_tokens), ZERO), _sum_known(of_platform))
    unpooled = sum((amount for name, amount in billed.items() if name not in names), ZERO)
    late = sum((line.amount for line in month.charged if line.key.correction), ZERO)
    return Recovery(pools, tokens, _margins(lines, period), unpooled, late)


def _device_time(period: BillingPeriod, month: MonthFacets) -> Mapping[tuple[str, str], DeviceTime | PoolTime]:
    """Return the uses of each pool's time: of a closed month as its close stored them, of a large open one as it was last
    assessed, else as they are now.
    """
    if period.status == BillingPeriod.Status.CLOSED and (closed := pool_times(period.close_number)):
        return closed
    if month.assessment is not None:
        return month.assessment.device_time
    return rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq).device_time


def _billed(
    lines: Iterable[Charged], period: BillingPeriod, pools: Collection[tuple[str, str]]
) -> dict[tuple[str, str], Decimal]:
    """Sum amounts by pool. A line with one price on all cards is shared out over the cards it was used on, to the cent."""
    billed: dict[tuple[str, str], Decimal] = defaultdict(lambda: ZERO)
    cards: dict[tuple[str, str, str, bool], dict[str, Decimal]] | None = None
    for line in lines:
        key = line.key
        if key.counts_tokens:
            continue
        if (key.cluster, key.accelerator) in pools or not key.namespace:
            billed[key.cluster, key.accelerator] += line.amount
            continue
        # read once, and only if a line has one price on all cards
        cards = cards if cards is not None else _cards(period)
        carried = key.what.explained_by is Explanation.ENDS
        used = cards.get((key.cluster, key.namespace, key.sku, carried), {key.accelerator: Decimal(1)})
        names = sorted(used)
        for name, amount in zip(names, split_amount(line.amount, [used[name] for name in names]), strict=True):
            billed[key.cluster, name] += amount
    return billed


def _cards(period: BillingPeriod) -> dict[tuple[str, str, str, bool], dict[str, Decimal]]:
    """Sum device-microseconds of the month by card, as its close saw them, by (cluster, namespace, resource): of all time,
    and (True) of the waived part.
    """
    found: dict[tuple[str, str, str, bool], dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    pieces, epochs = [period.window], EpochFilter(before=known_before(period))
    for item in chain(gpu_time(pieces, epochs), carried_time(pieces, epochs, interruption_rules())):
        if item.device_us:
            found[item.cluster, item.namespace, item.resource, bool(item.policy)][item.accelerator] += item.device_us
    return found


def _sum_known(costs: Sequence[Decimal | None]) -> Decimal | None:
    return None if None in costs else sum((cost for cost in costs if cost is not None), ZERO)


def _offered(window: Interval) -> dict[tuple[str, str], Decimal]:
    sums: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for item in capacity_sums(window):
        sums[item.cluster, item.accelerator] += Fraction(item.unit_us) * device_share(item.resource)
    return {name: hours_shown(amount) for name, amount in sums.items()}


def _pool(
    name: tuple[str, str], time: DeviceTime | PoolTime, offered: Decimal | None, hour: "_HourCost | None", billed: Decimal
) -> Pool:
    charged, platform, left = map(hours_shown, (time.charged, time.platform, time.unowned + time.unpriced))
    held = charged + platform + left
    # more may be allocated than the nodes reported as offered
    idle = None if offered is None else max(offered - held, Decimal(0))
    cost = platform_cost = None
    if hour is not None:
        cost = round_amount(Fraction(held) * Fraction(hour.used) + Fraction(idle or 0) * Fraction(hour.idle))
        platform_cost = round_amount(Fraction(platform) * Fraction(hour.used))
    used = None if hour is None else hour.used
    return Pool(*name, charged, platform, left, idle, offered, used, cost, platform_cost, billed)


def _in_force(period: BillingPeriod) -> Q:
    ends = Q(version__valid_until=None) | Q(version__valid_until__gt=period.start)
    return Q(version__valid_from__lt=period.end, cost_sheet__isnull=False) & ends


@dataclass(frozen=True, slots=True)
class _HourCost:
    """Cost of a used and of an idle hour of a device, in the currency of the list."""

    used: Decimal
    idle: Decimal


def _hour_costs(period: BillingPeriod) -> dict[str, _HourCost]:
    """Return the cost of an hour by accelerator; of several lists in the month, by the last."""
    rows = GpuPrice.objects.filter(_in_force(period), resource="").select_related("cost_sheet")
    return {
        row.accelerator: _HourCost(
            used=_without(row.cost_sheet, BEYOND_AN_INSTALLED_HOUR), idle=_without(row.cost_sheet, OF_USED_HOURS)
        )
        for row in rows.order_by("version__valid_from")
        if row.cost_sheet is not None
    }


def _without(sheet: CostSheet, names: Collection[str]) -> Decimal:
    parts = [part for part in sheet.result["components"] if part["name"] not in names]
    cost = sum((Decimal(part["cost_per_gpu_hour"]) for part in parts), Decimal(0))
    return cost * Decimal(sheet.inputs.get("exchange_rate") or 1)


def _margins(lines: Iterable[Charged], period: BillingPeriod) -> list[TokenMargin]:
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [Decimal(0), ZERO])
    for line in lines:
        if line.key.counts_tokens:
            found = sums[line.key.sku, line.key.token_class]
            found[0] += line.quantity
            found[1] += line.amount
    costs = _token_costs(period)
    return [
        TokenMargin(*name, millions, billed, round_to(Fraction(billed) / Fraction(millions), 4), costs.get(name))
        for name, (millions, billed) in sorted(sums.items())
        if millions
    ]


def _token_costs(period: BillingPeriod) -> dict[tuple[str, str], Decimal]:
    found: dict[tuple[str, str], Decimal] = {}
    rows = TokenPrice.objects.filter(_in_force(period)).select_related("cost_sheet").order_by("version__valid_from")
    for row in rows:
        for name, cost in figures_by_class(row.cost_sheet.result, "cost_per_1m").items() if row.cost_sheet else ():
            if name == row.token_class:
                found[row.model, name] = cost
    return found


@dataclass(frozen=True, slots=True)
class MonthSum:
    """Invoiced sums of a month by section, the notes issued in it, and the change of the net since the month before.

    `change`: None if either is not closed. `closed` False: its invoices are to come, and nothing can be compared with it;
    with `estimate` its sums are estimated, else it has none.
    """

    month: str
    parts: Mapping[str, Decimal] | None
    noted: Decimal
    closed: bool
    change: Decimal | None = None
    estimate: bool = False
    data_through: datetime | None = None

    @property
    def state(self) -> str:
        """Return the state of the figures: closed, estimate or open."""
        return "closed" if self.closed else "estimate" if self.estimate else "open"

    @property
    def net(self) -> Decimal | None:
        return None if self.parts is None else sum(self.parts.values(), self.noted)


def _change(item: MonthSum, before: Decimal | None) -> Decimal | None:
    return None if not item.closed or item.net is None or before is None else item.net - before


def _invoiced_parts(teams: QuerySet[Team]) -> dict[str, dict[str, Decimal]]:
    """Return invoiced amounts by month and section: stored sums have the amounts of devices and tokens, lines all others."""
    live = Invoice.objects.filter(team__in=teams, shadow=False, period__isnull=False).exclude(status=Invoice.Status.VOID)
    stored = InvoiceSums.objects.filter(invoice__in=live).order_by().values_list("invoice__period__month")
    found: dict[str, dict[str, Decimal]] = {}
    for month, gpu, tokens in stored.annotate(Sum("gpu"), Sum("tokens")):
        found[month] = {**dict.fromkeys(SECTIONS, ZERO), "gpu": gpu, "tokens": tokens}
    lines = InvoiceLine.objects.filter(invoice__in=live).exclude(kind__in=("gpu", "tokens")).order_by()
    for month, kind, amount in lines.values_list("invoice__period__month", "kind").annotate(Sum("amount")):
        found[month][line_kind(kind).section] += amount
    return found


def months_compared(teams: QuerySet[Team], still_open: Iterable[OpenMonth] = ()) -> list[MonthSum]:
    """Return the closed months, and open ones that have ended or in which notes were issued, newest first; showback invoices
    are in none.
    """
    sums = _invoiced_parts(teams)
    noted = notes_by_month(teams)
    closed = set(BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).values_list("month", flat=True))
    found: list[MonthSum] = []
    estimates: dict[str, dict[str, Any]] = {
        item.month: {"parts": item.statements.sums, "data_through": item.data_through}
        for item in still_open
        if item.statements
    }
    for month in sorted({*sums, *noted, *estimates}):
        # drafts of a close that blocks some teams are a part of their month: it has no sums until it is closed
        parts = sums.get(month, dict.fromkeys(SECTIONS, ZERO)) if month in closed else None
        item = MonthSum(month, parts, noted.get(month, ZERO), month in closed)
        if month in estimates:
            item = replace(item, estimate=True, **estimates[month])
        found.append(item)
    net = dict.fromkeys(closed, ZERO) | {item.month: item.net for item in found if item.closed}
    found = [replace(item, change=_change(item, net.get(previous_month(item.month)))) for item in found]
    return found[: -MONTHS_COMPARED - 1 : -1]
