"""What a board shows of a month: its lines under the filters, what to compare them with, when it was used, who wastes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from glob import escape
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet, Sum

from billing.budgets.expected import Expected, expected_of
from billing.budgets.scope import Scope
from billing.invoicing.lines import invoice_lines
from billing.invoicing.models import BillingPeriod, Invoice, InvoiceLine
from billing.portal.bridge import Bridge, bridge_of
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.splits import BY_JOB, Piece, SplitRow, by_job, split, whole_lines
from billing.portal.statements import AnyVerdict, MonthStatements, StatementLine, month_statements, previewed
from billing.rating.assessment import assess_slice
from billing.rating.models import EfficiencyVerdict
from billing.rating.selectors import books_known
from billing.tenancy.models import BillingSetup, Team
from billing.usage.held import HOUR_US, WeekHour, devices_by_week_hour, tokens_by_week_hour
from billing.usage.selectors import last_ordinal
from metering.intervals import Interval, previous_month
from pricing.money import round_to

ZERO = Decimal("0.00")
HOUR = timedelta(hours=1)
WASTING_SHOWN = 10
LOW_HFU = Decimal("0.30")
"""Below it a job is listed as wasting even where no policy judged it so."""


@dataclass(frozen=True)
class Board:
    """One month of `teams` under `filters`, as of `now`."""

    period: BillingPeriod
    setup: BillingSetup
    teams: QuerySet[Team]
    filters: Filters
    month: MonthStatements
    now: datetime

    @cached_property
    def shadow(self) -> bool:
        """Whether everything here is only shown and nobody charged."""
        return bool(self.month.statements) and not self.month.charged

    @cached_property
    def all_lines(self) -> list[StatementLine]:
        """The lines of the teams before any filter."""
        statements = self.month.statements if self.shadow else self.month.charged
        return [line for statement in statements for line in statement.lines]

    @cached_property
    def lines(self) -> list[StatementLine]:
        return self.filters.kept(self.all_lines)

    @cached_property
    def total(self) -> Decimal:
        return sum((line.amount for line in self.lines), ZERO)

    @property
    def running(self) -> bool:
        """Whether the month goes on."""
        return self.month.preview and self.period.start <= self.now < self.period.end

    @cached_property
    def codes(self) -> list[str]:
        return sorted(team.code for team in self.month.teams)

    def options(self) -> dict[str, list[str]]:
        """What each filter can ask for, from the lines of the month."""
        keys = [line.key for line in self.all_lines]
        return {
            "site": sorted({key.cluster for key in keys if key.cluster}),
            "namespace": sorted({key.namespace for key in keys if key.namespace}),
            "accelerator": sorted({key.sku for key in keys if key.kind != "tokens"}),
            "model": sorted({key.sku for key in keys if key.kind == "tokens"}),
            "consumer": sorted({key.consumer for key in keys if key.consumer}),
        }

    def rows(self, by: str) -> list[SplitRow]:
        """The lines split by one of `splits.NAMES`."""
        pieces: list[Piece] = (
            by_job(self.lines, self.period, self.month.books, self.verdicts) if by in BY_JOB else whole_lines(self.lines)
        )
        return split(pieces, by)

    @cached_property
    def verdicts(self) -> list[AnyVerdict]:
        """What was said of the jobs under the filters; tokens and accelerators are no part of a verdict."""
        if self.filters.model or self.filters.consumer:
            return []
        if self.month.assessment is not None:
            known: Sequence[AnyVerdict] = [item for item in self.month.assessment.verdicts if item.team in self.codes]
        else:
            known = list(EfficiencyVerdict.objects.filter(closing=self.period.ordinal, team__in=self.codes))
        return [
            item
            for item in known
            if self.filters.namespace in ("", item.namespace) and self.filters.site in ("", item.cluster)
        ]

    def wasting(self) -> list[tuple[AnyVerdict, Decimal]]:
        """Judged jobs with a penalty or a low HFU, with the GPU-seconds that computed nothing, the most wasteful first."""
        low = [
            (item, item.gpu_seconds * (1 - item.hfu))
            for item in self.verdicts
            if item.hfu is not None and (item.reason.startswith("penalty") or item.hfu < LOW_HFU)
        ]
        return sorted(low, key=lambda pair: (-pair[1], pair[0].job))[:WASTING_SHOWN]

    def expected(self) -> Expected | None:
        """Where a running month will end."""
        if not self.running:
            return None
        names = {"cluster": self.filters.site, "namespace": self.filters.namespace}
        names |= {name: getattr(self.filters, name) for name in ("accelerator", "model", "consumer")}
        patterns = {name: value if name == "accelerator" else escape(value) for name, value in names.items()}
        scope = Scope(frozenset(self.codes), **patterns)
        window = Interval(self.period.start, self.period.end)
        return expected_of(scope, window, self.total, self.now, self.period.zone, self.month.books)

    def last_month(self) -> Decimal | None:
        """What the month before was invoiced, under the same filters; None where it is not closed."""
        before = BillingPeriod.objects.filter(month=previous_month(self.period.month)).first()
        if before is None or before.status != BillingPeriod.Status.CLOSED:
            return None
        lines = InvoiceLine.objects.filter(
            _asked(self.filters), invoice__period=before, invoice__team__in=self.teams, invoice__shadow=self.shadow
        )
        return lines.exclude(invoice__status=Invoice.Status.VOID).aggregate(sum=Sum("amount"))["sum"] or ZERO

    def bridge(self) -> Bridge | None:
        """Against the month before; a running month against as many days of it. None where nothing was used then."""
        before = self._lines_before()
        return bridge_of(self.filters.kept(before), self.lines) if before else None

    def _lines_before(self) -> list[StatementLine]:
        period = period_shown(previous_month(self.period.month), self.setup)
        if not self.running:
            month = month_statements(period, self.teams)
            lines = [line for item in month.statements if item.shadow == self.shadow for line in item.lines]
            return [line for line in lines if not (month.preview and line.key.correction)]
        until = min(period.start + (self.now - self.period.start), period.end)
        if until <= period.start:
            return []
        closing = last_ordinal() + 1
        books = self.month.books or books_known(closing)
        window = Interval(period.start, until)
        assessed = assess_slice(window=window, zone=period.zone, books=books, closing=closing, correction=False)
        charges = [
            charge for charge in assessed.charges if charge.key.team in self.codes and not charge.key.platform
        ]
        return [previewed(line) for line in invoice_lines(charges)]

    def heat(self) -> list["Heat"]:
        """Use by hour of the week of the namespaces and consumers that the lines name."""
        until = min(self.period.end, self.now)
        if until <= self.period.start:
            return []
        window, zone = Interval(self.period.start, until), self.period.zone
        keys = [line.key for line in self.lines if not line.key.correction]
        places = {(key.cluster, key.namespace) for key in keys if key.kind == "gpu"}
        consumers = {key.consumer for key in keys if key.kind == "tokens"}
        hours = _hours_of(window, zone)
        found = [
            heat_of("devices", devices_by_week_hour(window, zone, places, self.filters.accelerator), hours, HOUR_US, 1),
            heat_of("tokens", tokens_by_week_hour(window, zone, consumers, self.filters.model), hours, 1, 0),
        ]
        return [item for item in found if item is not None]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One hour of the week: the mean use while it lasted, and its shade from 0 to 9."""

    hour: int
    mean: Decimal | None
    shade: int


@dataclass(frozen=True, slots=True)
class Heat:
    """Mean use by weekday (Monday first) and hour: devices held, or tokens an hour. `peak` is the largest."""

    name: str
    days: list[list[HeatCell]]
    peak: Decimal


def heat_of(
    name: str, sums: dict[WeekHour, Decimal], hours: Counter[WeekHour], per: int, places: int
) -> Heat | None:
    """Means over the hours that the window has; an hour of the week that it does not have is not known."""
    means = {
        at: round_to(Fraction(sums.get(at, Decimal(0))) / (per * count), places) for at, count in hours.items() if count
    }
    peak = max(means.values(), default=Decimal(0))
    if not peak:
        return None
    days = [[_cell(means.get((day, hour)), hour, peak) for hour in range(24)] for day in range(7)]
    return Heat(name, days, peak)


def _cell(mean: Decimal | None, hour: int, peak: Decimal) -> HeatCell:
    return HeatCell(hour, mean, 0 if not mean else min(9, 1 + int(mean / peak * 8)))


def _hours_of(window: Interval, zone: str) -> Counter[WeekHour]:
    where = ZoneInfo(zone)
    hours: Counter[WeekHour] = Counter()
    at = window.start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    while at < window.end:
        there = at.astimezone(where)
        hours[there.weekday(), there.hour] += 1
        at += HOUR
    return hours


def _asked(filters: Filters) -> Q:
    asked = Q()
    fields = {"site": "cluster", "namespace": "namespace", "consumer": "consumer", "team": "invoice__team__code"}
    for name, field in fields.items():
        if value := getattr(filters, name):
            asked &= Q(**{field: value})
    if filters.accelerator:
        asked &= ~Q(kind="tokens") & (Q(accelerator=filters.accelerator) | Q(sku=filters.accelerator))
    return asked & Q(kind="tokens", sku=filters.model) if filters.model else asked
