"""PURE: query of the explorer, parsed from an address and formatted back to it.

Days are local days of the billing zone, both ends included, as people say them. The address has the whole query, so that
links, saved views, reports and API calls share one form.
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
"""Limit of days that are shown by hour."""
MOST_GROUPS: Final = 2
MOST_VALUES: Final = 50
LONGEST_NAME: Final = 2000
NONE: Final = "none"
NAMELESS: Final = "∅"
"""Value of a filter for items without a name in that dimension."""


class QueryError(UserError, ValueError):
    """Invalid query in an address."""

    code = "explore"


class TooFineError(QueryError):
    """Query for more hours than are split while a reader waits."""

    code = "explorer_too_fine"


class Address(Protocol):
    """Query parameters of an address, as Django parses them."""

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
        """Return True if the span begins with the first and ends with the last day of a month."""
        return self.first.day == 1 and (self.last + DAY).day == 1

    @property
    def month(self) -> str:
        """Return the month if the span is exactly one, else ""."""
        months = self.months
        return months[0] if self.is_whole_months and len(months) == 1 else ""

    def before(self) -> "Span":
        """Return the span of the same length that ends where this one begins; whole months before whole months.

        >>> Span(date(2026, 10, 1), date(2026, 11, 30)).before()
        Span(first=datetime.date(2026, 8, 1), last=datetime.date(2026, 9, 30))
        >>> Span(date(2026, 10, 5), date(2026, 10, 11)).before()
        Span(first=datetime.date(2026, 9, 28), last=datetime.date(2026, 10, 4))
        """
        if self.is_whole_months:
            return Span(_months_later(self.first, -len(self.months)), self.first - DAY)
        return Span(self.first - self.days * DAY, self.first - DAY)

    def through(self, last: date) -> "Span | None":
        """Return the part of the span up to a day; None where that is empty."""
        return None if last < self.first else Span(self.first, min(self.last, last))

    def first_days(self, number: int) -> "Span":
        """Return the first n days, or all."""
        return Span(self.first, min(self.last, self.first + (number - 1) * DAY))


def preset(name: str, today: date, year_begins: int) -> Span:
    """Return the days of a preset today; a running range ends with its last day.  Raises QueryError.

    year_begins: first month of fiscal years, and so of their quarters.

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
    """Return the first day of the month so many months later."""
    months = day.year * 12 + day.month - 1 + number
    return date(months // 12, months % 12 + 1, 1)


Filters = tuple[tuple[str, tuple[str, ...]], ...]
"""Dimensions with the selected names, in the order of DIMENSIONS."""


@dataclass(frozen=True, slots=True)
class Query:
    """Query of the explorer. `preset` empty: from `first` to `last`, else both are the days of the preset today.

    `search`: only groups with that text in one of their names. `columns` and `sort` are about the table; a minus sorts down.
    Teams in a filter are codes, NAMELESS items without a name.
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
        """Return the selected names, by dimension."""
        return dict(self.filters)

    @property
    def of_jobs(self) -> bool:
        """Return True if the query distinguishes workloads."""
        return not OF_JOBS.isdisjoint({*self.by, *self.filter})

    def only(self, **names: str) -> "Query":
        """Return the query with one name selected in each of these dimensions."""
        return replace(self, filters=_ordered({**self.filter, **{name: (value,) for name, value in names.items()}}))

    def without(self, dimension: str, name: str | None = None) -> "Query":
        """Return the query without the filter of a dimension, or without one of its names."""
        left = tuple(value for value in self.filter.get(dimension, ()) if name is not None and value != name)
        return replace(self, filters=_ordered({**self.filter, dimension: left}))

    def during(self, span: Span) -> "Query":
        """Return the query for other days."""
        return replace(self, first=span.first, last=span.last, preset="")

    @property
    def address(self) -> str:
        """Return the query string of the address, without defaults."""
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
    """Return the default step of a span."""
    return "day" if span.days <= 45 else "week" if span.days <= 200 else "month"


def query_of(
    address: Address, today: date, year_begins: int, *, by: Sequence[str] = ("team",), usual: str = "this-month",
    coarser: bool = False,
) -> Query:  # fmt: skip
    """Parse the query of an address; `by` and `usual`: default groups and range.  Raises QueryError.

    year_begins: see `preset`.  coarser: use the default step, whichever the address has.
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
    """Return the values of a parameter, or the default where it is absent; `none` stands for no value."""
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
    """Bar of a chart: an hour, a day, or the queried part of a week or a month. `start`: of an hour, in local time."""

    span: Span
    name: str
    start: datetime | None = None


def steps_of(span: Span, step: str, zone: str = "UTC") -> list[Step]:
    """Return the bars of a span; a week begins on Monday.  zone: of the hours.

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
    """Return the start of each hour of a local day: 23 or 25 where the clock changes.

    >>> len(hours_of(date(2026, 10, 25), "Europe/Berlin")), len(hours_of(date(2026, 10, 25), "Asia/Shanghai"))
    (25, 24)
    """
    # in UTC: adding hours to a local time would skip or repeat the hour of a clock change
    start, end = (midnight_of(one, zone).astimezone(UTC) for one in (day, day + DAY))
    return [(start + number * HOUR).astimezone(ZoneInfo(zone)) for number in range(-(-(end - start) // HOUR))]
