"""PURE: what is asked of the explorer, read from an address and written back to it.

Days are local days of the billing zone, both ends included, as people say them. Everything that is asked stands in the
address, so that a link, a saved view, a report and a call of the API are one thing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final, Protocol
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from billing.explorer.cube import OF_A_WORKLOAD
from metering.intervals import IntervalError, billing_month, fiscal_quarter_of, midnight_of
from metering.messages import Message, UserError

DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
METRICS: Final = ("cost", "gpu_hours", "slice_hours", "tokens", "requests", "energy", "co2")
STEPS: Final = ("hour", "day", "week", "month")
DIMENSIONS: Final = (
    "team", "namespace", "job", "consumer", "model", "accelerator", "cluster", "site", "pool", "queue", "tier", "kind",
)  # fmt: skip
OF_JOBS: Final = frozenset(OF_A_WORKLOAD)
UNIT_COLUMNS: Final = (
    "gpu_hours", "per_gpu_hour", "requests", "per_1000_requests", "tokens", "per_1m_tokens", "jobs", "per_job", "co2",
)  # fmt: skip
COLUMNS: Final = ("share", "before", "change", *UNIT_COLUMNS)
USUAL_COLUMNS: Final = ("share", "before", "change")
SORTS: Final = ("name", "total", *COLUMNS)
PRESETS: Final = (
    "this-month", "last-month", "last-7-days", "last-30-days", "last-90-days", "this-quarter", "last-quarter", "this-year",
    "last-year", "last-12-months",
)  # fmt: skip
LONGEST_DAYS: Final = 1100
LONGEST_OF_HOURS: Final = 31
"""So many days at most are shown by hour."""
MOST_GROUPS: Final = 2
MOST_VALUES: Final = 50
LONGEST_NAME: Final = 2000
NONE: Final = "none"
NAMELESS: Final = "∅"
"""In a filter: what has no name in that dimension."""


class QueryError(UserError, ValueError):
    """What an address asks for is nothing that can be asked."""

    code = "explore"


class TooFineError(QueryError):
    """Hours of more than are shared out while somebody waits."""

    code = "explorer_too_fine"


class Address(Protocol):
    """The query of an address, as Django reads it."""

    def get(self, key: str, /) -> str | None: ...
    def getlist(self, key: str, /) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Span:
    """Local days from `first` to `last`, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def months(self) -> list[str]:
        found, day = [], self.first.replace(day=1)
        while day <= self.last:
            found.append(f"{day:%Y-%m}")
            day = _months_later(day, 1)
        return found

    @property
    def is_whole_months(self) -> bool:
        """Whether it begins and ends with a month."""
        return self.first.day == 1 and (self.last + DAY).day == 1

    @property
    def month(self) -> str:
        """The one month that it is, or nothing."""
        months = self.months
        return months[0] if self.is_whole_months and len(months) == 1 else ""

    def before(self) -> "Span":
        """The span of the same length that ends where this one begins; whole months before whole months.

        >>> Span(date(2026, 10, 1), date(2026, 11, 30)).before()
        Span(first=datetime.date(2026, 8, 1), last=datetime.date(2026, 9, 30))
        >>> Span(date(2026, 10, 5), date(2026, 10, 11)).before()
        Span(first=datetime.date(2026, 9, 28), last=datetime.date(2026, 10, 4))
        """
        if self.is_whole_months:
            return Span(_months_later(self.first, -len(self.months)), self.first - DAY)
        return Span(self.first - self.days * DAY, self.first - DAY)

    def through(self, last: date) -> "Span | None":
        """As much of it as lies up to a day; None where that is nothing."""
        return None if last < self.first else Span(self.first, min(self.last, last))

    def first_days(self, number: int) -> "Span":
        """Its first days, all of them where it has fewer."""
        return Span(self.first, min(self.last, self.first + (number - 1) * DAY))


def preset(name: str, today: date, year_begins: int) -> Span:
    """The days that a preset means today; what runs on ends with its last day.  Raises QueryError.

    year_begins: the month with which fiscal years, and so their quarters, begin.

    >>> preset("last-7-days", date(2026, 11, 23), 1), preset("last-quarter", date(2026, 11, 23), 12).first
    (Span(first=datetime.date(2026, 11, 17), last=datetime.date(2026, 11, 23)), datetime.date(2026, 6, 1))
    """
    fiscal = fiscal_quarter_of(f"{today:%Y-%m}", year_begins)
    month, quarter, year = today.replace(day=1), _first_day(fiscal.first), _first_day(fiscal.first_of_year)
    starts = {
        "this-month": (month, 1), "last-month": (_months_later(month, -1), 1), "this-quarter": (quarter, 3),
        "last-quarter": (_months_later(quarter, -3), 3), "this-year": (year, 12),
        "last-year": (_months_later(year, -12), 12), "last-12-months": (_months_later(month, -11), 12),
    }  # fmt: skip
    if name in starts:
        first, number = starts[name]
        return Span(first, _months_later(first, number) - DAY)
    days = {"last-7-days": 7, "last-30-days": 30, "last-90-days": 90}
    if name not in days:
        raise QueryError(Message("%(name)s: no such range; one of %(names)s", name=name, names=", ".join(PRESETS)))
    return Span(today - (days[name] - 1) * DAY, today)


def _first_day(month: str) -> date:
    return date.fromisoformat(f"{month}-01")


def _months_later(day: date, number: int) -> date:
    """The first of the month so many months later."""
    months = day.year * 12 + day.month - 1 + number
    return date(months // 12, months % 12 + 1, 1)


Filters = tuple[tuple[str, tuple[str, ...]], ...]
"""Dimensions with the names that are asked for, in the order of DIMENSIONS."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked. `preset` empty: from `first` to `last`, else both are what it means today.

    `search`: only groups with that in the name of one of their parts. `columns` and `sort` are about the table; a sort with
    a minus goes down. The team of a filter is a code, NAMELESS what has no name.
    """

    first: date
    last: date
    preset: str = ""
    metric: str = "cost"
    step: str = "day"
    by: tuple[str, ...] = ("team",)
    filters: Filters = ()
    search: str = ""
    columns: tuple[str, ...] = USUAL_COLUMNS
    sort: str = "-total"

    @property
    def span(self) -> Span:
        return Span(self.first, self.last)

    @property
    def filter(self) -> Mapping[str, tuple[str, ...]]:
        """The names that are asked for, by dimension."""
        return dict(self.filters)

    @property
    def of_jobs(self) -> bool:
        """Whether it tells workloads apart."""
        return not OF_JOBS.isdisjoint({*self.by, *self.filter})

    def only(self, **names: str) -> "Query":
        """The same with one name asked for in each of these dimensions."""
        return replace(self, filters=_ordered({**self.filter, **{name: (value,) for name, value in names.items()}}))

    def without(self, dimension: str, name: str | None = None) -> "Query":
        """The same without what is asked of a dimension, or without one of its names."""
        left = tuple(value for value in self.filter.get(dimension, ()) if name is not None and value != name)
        return replace(self, filters=_ordered({**self.filter, dimension: left}))

    def during(self, span: Span) -> "Query":
        """The same of other days."""
        return replace(self, first=span.first, last=span.last, preset="")

    @property
    def address(self) -> str:
        """The query of the address that asks just this, without what is usual."""
        facts: list[tuple[str, str]] = []
        if self.preset:
            facts.append(("range", self.preset))
        else:
            facts += [("from", self.first.isoformat()), ("to", self.last.isoformat())]
        facts += [("metric", self.metric)] if self.metric != "cost" else []
        facts += [("step", self.step)] if self.step != usual_step(self.span) else []
        facts += [("by", name) for name in self.by] or [("by", NONE)]
        facts += [(name, value) for name, values in self.filters for value in values]
        facts += [("search", self.search)] if self.search else []
        facts += [("column", name) for name in self.columns or (NONE,)] if self.columns != USUAL_COLUMNS else []
        facts += [("sort", self.sort)] if self.sort != "-total" else []
        return urlencode(facts)


def usual_step(span: Span) -> str:
    """The step in which a span is easy to read."""
    return "day" if span.days <= 45 else "week" if span.days <= 200 else "month"


def query_of(
    address: Address, today: date, year_begins: int, *, by: Sequence[str] = ("team",), usual: str = "this-month",
    coarser: bool = False,
) -> Query:  # fmt: skip
    """What an address asks for; `by` and `usual`: the groups and the range where it says none.  Raises QueryError.

    year_begins: see `preset`.  coarser: in the usual step, whichever it asks for.
    """
    span, name = _span(address, today, year_begins, usual)
    groups = _known("by", _chosen(address, "by", by), DIMENSIONS)
    if len(groups) > MOST_GROUPS:
        raise QueryError(Message("by: at most two of %(names)s", names=", ".join(DIMENSIONS)))
    columns = _known("column", _chosen(address, "column", USUAL_COLUMNS), COLUMNS)
    sort = address.get("sort") or "-total"
    _known("sort", (sort.removeprefix("-"),), SORTS)
    (metric,) = _known("metric", (address.get("metric") or "cost",), METRICS)
    asked_step = "" if coarser else address.get("step") or ""
    (step,) = _known("step", (asked_step or usual_step(span),), STEPS)
    if step == "hour" and span.days > LONGEST_OF_HOURS:
        raise TooFineError(Message("Hours are shown of at most %(n)s days", n=LONGEST_OF_HOURS))
    filters = _ordered({
        dimension: tuple(dict.fromkeys(value for value in address.getlist(dimension) if value)) for dimension in DIMENSIONS
    })
    search = (address.get("search") or "").strip()
    if any(len(values) > MOST_VALUES or any(len(value) > LONGEST_NAME for value in values) for _, values in filters):
        raise QueryError(Message("at most %(n)s names can be asked for in a filter", n=MOST_VALUES))
    return Query(
        span.first, span.last, name, metric, step, groups, filters, search[:LONGEST_NAME],
        tuple(column for column in COLUMNS if column in columns), sort,
    )  # fmt: skip


def _chosen(address: Address, name: str, usual: Sequence[str]) -> tuple[str, ...]:
    """What an address chooses, or the usual where it says nothing; beside others, `none` says nothing."""
    asked = [value for value in address.getlist(name) if value]
    return tuple(dict.fromkeys(value for value in asked if value != NONE)) if asked else tuple(usual)


def _span(address: Address, today: date, year_begins: int, usual: str) -> tuple[Span, str]:
    first, last = address.get("from") or "", address.get("to") or ""
    if name := address.get("range") or "":
        return preset(name, today, year_begins), name
    if month := address.get("month") or "":
        start = _first_day(_month(month))
        return Span(start, _months_later(start, 1) - DAY), ""
    if not first and not last:
        return preset(usual, today, year_begins), usual
    span = Span(_day("from", first), _day("to", last) if last else today)
    if span.last < span.first:
        raise QueryError(Message("from %(first)s to %(last)s: ends before it begins", first=first, last=str(span.last)))
    if span.days > LONGEST_DAYS:
        raise QueryError(Message("from %(first)s to %(last)s: longer than three years", first=first, last=str(span.last)))
    return span, ""


def _month(text: str) -> str:
    try:
        billing_month(text, "UTC")
    except IntervalError as error:
        raise QueryError(error.args[0]) from error
    return text


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise QueryError(Message("%(name)s %(text)s: a day such as 2026-10-31", name=name, text=repr(text))) from error


def _known(name: str, asked: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(known)
    wrong = next((value for value in asked if value not in names), None)
    if wrong is not None:
        raise QueryError(Message(
            "%(name)s %(value)s: one of %(names)s", name=name, value=repr(wrong), names=", ".join(names)
        ))  # fmt: skip
    return asked


def _ordered(filters: Mapping[str, tuple[str, ...]]) -> Filters:
    return tuple((dimension, filters[dimension]) for dimension in DIMENSIONS if filters.get(dimension))


@dataclass(frozen=True, slots=True)
class Step:
    """One bar: an hour, a day, or as much of a week or a month as is asked for. `start`: of an hour, in local time."""

    span: Span
    name: str
    start: datetime | None = None


def steps_of(span: Span, step: str, zone: str = "UTC") -> list[Step]:
    """The bars of a span; a week begins on Monday.  zone: of the hours.

    >>> [one.name for one in steps_of(Span(date(2026, 10, 30), date(2026, 11, 3)), "week")]
    ['2026-10-26', '2026-11-02']
    """
    found: list[Step] = []
    day = span.first
    while day <= span.last:
        if step == "hour":
            found += [Step(Span(day, day), start.isoformat(), start) for start in hours_of(day, zone)]
            day += DAY
            continue
        if step == "month":
            begin, end = day.replace(day=1), _months_later(day, 1) - DAY
        elif step == "week":
            begin = day - day.weekday() * DAY
            end = begin + 6 * DAY
        else:
            begin = end = day
        found.append(Step(Span(day, min(end, span.last)), f"{begin:%Y-%m}" if step == "month" else begin.isoformat()))
        day = end + DAY
    return found


def hours_of(day: date, zone: str) -> list[datetime]:
    """When each hour of a local day begins: there are 23 or 25 where the clock is changed.

    >>> len(hours_of(date(2026, 10, 25), "Europe/Berlin")), len(hours_of(date(2026, 10, 25), "Asia/Shanghai"))
    (25, 24)
    """
    start, end = (midnight_of(one, zone).astimezone(UTC) for one in (day, day + DAY))
    return [(start + number * HOUR).astimezone(ZoneInfo(zone)) for number in range(-(-(end - start) // HOUR))]
