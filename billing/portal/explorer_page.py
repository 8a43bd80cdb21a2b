"""Page of an answer of the explorer: its rows with their links, and its chart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.explorer.cube import note_of
from billing.explorer.labels import (
    BY_STEP,
    COLUMN,
    DIMENSION,
    DIMENSIONS_MANY,
    METRIC,
    PRESET,
    STEP,
    UNIT,
    Name,
    apart_texts,
    begun_text,
    fiscal_text,
    name_of,
    span_text,
    step_text,
    title_of,
    unknown_texts,
)
from billing.explorer.query import (
    COLUMNS,
    DIMENSIONS,
    LONGEST_OF_HOURS,
    METRICS,
    NAMELESS,
    PRESETS,
    STEPS,
    Query,
    Span,
    Step,
    usual_step,
)
from billing.explorer.results import UNIT_COSTS, Group
from billing.explorer.selectors import Explored
from billing.portal.charts import Chart, Series
from billing.portal.explorer_outlook import Outlook
from billing.portal.labels import NOTHING
from billing.portal.templatetags.portal import count, hours, money, price, ratio, sign, signed_money, signed_percent
from billing.runtime.translation import translated
from metering.intervals import next_month
from pricing.money import amount_places, round_to

ROWS_SHOWN: Final = 50
FEWEST_DAYS: Final = 2
TENFOLD: Final = 9
COUNTED: Final = ("tokens", "requests", "jobs")
COLOURS: Final = tuple(f"c{number}" for number in range(10))
NEXT: Final[Mapping[str, str]] = {
    "team": "namespace", "namespace": "job", "cluster": "namespace", "site": "namespace", "accelerator": "namespace",
    "pool": "job", "queue": "job", "tier": "job", "model": "consumer", "consumer": "model", "kind": "team", "job": "team",
}  # fmt: skip
"""Dimension that splits a group next, by the dimension of the group."""


def amount(value: Decimal | None, metric: str) -> str:
    """Format a sum for the page; files have the exact one."""
    if metric == "cost" or value is None:
        return money(value)
    return count(value) if metric in COUNTED else hours(value)


@dataclass(frozen=True)
class Row:
    """Group in the table: its names, its colour in the chart, its cells and its link. `line`: page of an invoice line."""

    group: Group
    names: list[Name]
    colour: str
    link: str
    line: str
    cells: list[tuple[str, str, str, str]]
    change: str

    @property
    def title(self) -> str:
        return " · ".join(name.text for name in self.names)

    @property
    def under(self) -> str:
        """Return the secondary texts of the names, which tell them from others."""
        return " · ".join(name.under for name in self.names if name.under)


@dataclass(frozen=True, slots=True)
class Option:
    """Choice of a field: its code, its words, and its state."""

    code: str
    text: Any
    chosen: bool


@dataclass(frozen=True, slots=True)
class Chip:
    """Filter in force, and the address without it."""

    dimension: Any
    text: str
    link: str


@dataclass(frozen=True)
class ExplorerPage:
    """Answer as its page shows it. `stale`: so much usage may be missing that there is no comparison (`uncompared`) and
    no forecast. `outlook`: of the running month.
    """

    found: Explored
    called: Mapping[str, str]
    currency: str
    stale: bool = False
    outlook: Outlook | None = None

    @property
    def query(self) -> Query:
        return self.found.query

    @property
    def unit(self) -> str:
        return self.currency if self.query.metric == "cost" else str(UNIT[self.query.metric])

    @property
    def compared(self) -> Span | None:
        """Return the days of the comparison; None if it would mislead."""
        return self.found.compared

    def text(self, value: Decimal | None) -> str:
        return amount(value, self.query.metric)

    @property
    def total_text(self) -> str:
        return self.text(self.found.total.total)

    @property
    def total_change_text(self) -> str:
        return self._change(self.found.total)

    @property
    def total_ratio_text(self) -> str:
        return _percent(self.found.total.change_ratio)

    @property
    def is_part(self) -> bool:
        """Return True if the answer leaves out days of its open months, or usage by a filter other than the team."""
        query, months = self.query, self.found.open_months
        if query.search or query.filter.keys() - {"team"}:
            return True
        if not months:
            return False
        first, after = (date.fromisoformat(f"{month}-01") for month in (months[0], next_month(months[-1])))
        return query.first > first or query.last < min(after - timedelta(days=1), self.found.today)

    @property
    def mean_text(self) -> str:
        """Return the mean of the days begun, from the first day with data; empty if they are too few."""
        first = max(self.query.first, self.found.first_day or self.query.first)
        passed = None if self.query.last < first else Span(first, self.query.last).through(self.found.today)
        if passed is None or passed.days < FEWEST_DAYS:
            return ""
        mean = Fraction(self.found.total.total) / passed.days
        return self.text(round_to(mean, 0 if self.query.metric in COUNTED else amount_places()))

    @property
    def refused(self) -> str:
        """Return the reason why the bars are no hours, if hours were asked for."""
        return translated(self.found.refused) if self.found.refused else ""

    @property
    def unknown(self) -> list[str]:
        """Return a sentence for each kind of usage that the figures leave out."""
        apart = f"{self.text(self.found.apart)} {self.unit}"
        return [*unknown_texts(self.found.unknown, hours), *apart_texts(self.found, apart)]

    @property
    def begun_text(self) -> str:
        """Return the reason for no comparison, if the days before have no figures."""
        return begun_text(self.found)

    @property
    def metric_text(self) -> Any:
        return METRIC[self.query.metric]

    @property
    def groups_title(self) -> str:
        """Return the names of the dimensions that split the answer."""
        return " · ".join(str(DIMENSION[name]) for name in self.query.by) or gettext("Total")

    @property
    def groups_counted(self) -> Any:
        return DIMENSIONS_MANY[self.query.by[0]] if len(self.query.by) == 1 else _("Groups")

    @property
    def chart_title(self) -> str:
        return f"{self.metric_text} {BY_STEP[self.query.step]}, {self.groups_title}, {self.span_text}"

    @property
    def by_step_text(self) -> Any:
        return BY_STEP[self.query.step]

    @property
    def step_title(self) -> Any:
        return STEP[self.query.step]

    def _change(self, group: Group) -> str:
        if group.change is None or self.compared is None:
            return NOTHING
        if self.query.metric == "cost":
            return signed_money(group.change)
        return f"{'+' * (group.change > 0)}{self.text(group.change)}"

    @cached_property
    def rows(self) -> list[Row]:
        colours = dict(zip((group.names for group in self.found.charted), COLOURS, strict=False))
        return [self._row(group, colours.get(group.names, "other")) for group in self.found.groups[:ROWS_SHOWN]]

    def _row(self, group: Group, colour: str) -> Row:
        names = [name_of(name, value, self.called) for name, value in zip(self.query.by, group.names, strict=True)]
        link, line = self._deeper(group, None), self._line(group)
        cells = [(code, text, look, self._behind(group, code, text)) for code, text, look in self._cells(group)]
        return Row(group, names or [Name(gettext("All"))], colour, link, line, cells, self._change(group))

    @property
    def order(self) -> list[str]:
        """Return the columns of the table after the name."""
        shown = [name for name in self.query.columns if self.compared is not None or name not in ("before", "change")]
        return ["total", *shown]

    def _cells(self, group: Group) -> list[tuple[str, str, str]]:
        """Return code, text and class of each cell of a row."""
        return [(code, self._cell(group, code), _class(code, group)) for code in self.order]

    def _cell(self, group: Group, code: str) -> str:
        if code == "change":
            return self._change(group)
        if code == "share":
            whole = self.found.total.total
            return ratio(group.total / whole) if whole else NOTHING
        value = group.cell(code)
        if code in UNIT_COSTS:
            return price(value)
        return amount(value, self.query.metric if code in ("total", "before") else code)

    @property
    def total_cells(self) -> list[tuple[str, str, str]]:
        """Return the cells of all groups together."""
        return self._cells(self.found.total)

    @property
    def left_out(self) -> int:
        """Return the number of groups without a row."""
        return max(0, self.found.number - sum(1 for row in self.rows if row.group.counts))

    @property
    def rest_cells(self) -> list[tuple[str, str, str]]:
        """Return the cells of the groups without a row; only the sum has a text."""
        rest = self.found.total.total - sum((row.group.total for row in self.rows), Decimal(0))
        return [(code, self.text(rest) if code == "total" else "", "" if code == "total" else "wide") for code in self.order]

    def _only(self, group: Group) -> Query:
        """Return the query for one group alone."""
        names = zip(self.query.by, group.names, strict=True)
        return self.query.only(**{dimension: value or NAMELESS for dimension, value in names})

    def _behind(self, group: Group, code: str, text: str) -> str:
        """Return the address behind a cell: the reasons of a change, the parts of another figure; empty for none."""
        if text == NOTHING:
            return ""
        if code == "change" and self.query.metric == "cost":
            return f"?{replace(self._only(group), search='').address}#why"
        return self._deeper(group, self.compared if code == "before" else None, code if code in METRICS else "")

    def _deeper(self, group: Group, span: Span | None, metric: str = "") -> str:
        """Return the address of the parts of a group, of its bar (`span`), or of another metric."""
        query, asked = self.query, self._only(group)
        by = next((name for name in _following(query.by) if name not in query.by and name not in query.filter), "")
        asked = replace(asked, by=(by,) if by else asked.by, metric=metric or asked.metric, search="")
        return f"?{(asked.during(span) if span else asked).address}"

    def _bar(self, group: Group, step: Step) -> str:
        """Return the address of a bar's parts; for the bar of all others, of its days."""
        return f"?{self.query.during(step.span).address}" if group is self.found.other else self._deeper(group, step.span)

    def _line(self, group: Group) -> str:
        """Return the page of a group's largest line, or of its note; empty if it has none: a span is not one month."""
        if group.line is None:
            return ""
        team, digest = group.line
        if (note := note_of(digest)) is not None:
            return reverse("portal:note", args=[note])
        asked = {"month": self.query.span.month}
        job = dict(zip(self.query.by, group.names, strict=True)).get("job")
        return f"{reverse('portal:line', args=[team, digest])}?{urlencode(asked | ({'workload': job} if job else {}))}"

    @cached_property
    def chart(self) -> Chart:
        """Return stacked bars of the largest groups and of all others."""
        found, charted = self.found, list(self.found.charted)
        series = [
            Series(self._title(group), "stack", colour, group.bars, [self.text(bar) for bar in group.bars],
                   links=[self._bar(group, step) for step in found.steps])
            for group, colour in zip(charted, COLOURS, strict=False)
        ]  # fmt: skip
        if any(found.other.bars):
            links = [self._bar(found.other, step) for step in found.steps]
            bars, texts = found.other.bars, [self.text(bar) for bar in found.other.bars]
            series.append(Series(gettext("All others"), "stack", "other", bars, texts, links=links))
        axis, across = f"{self.unit} {BY_STEP[self.query.step]}", str(STEP[self.query.step])
        names = [self.step_text(step) for step in found.steps]
        chart = Chart(names, series, self.unit, axis=axis, legend=False, across=across)
        return chart if self.outlook is None else self.outlook.lines(chart)

    def _title(self, group: Group) -> str:
        return title_of(self.query, group.names, self.called) or str(METRIC[self.query.metric])

    @cached_property
    def legend(self) -> list[tuple[str, str, str, str]]:
        """Return colour, name, total and address of each part of the chart."""
        found = [
            (colour, self._title(group), self.text(group.total), self._deeper(group, None))
            for group, colour in zip(self.found.charted, COLOURS, strict=False)
            if group.total
        ]
        if any(self.found.other.bars):
            found.append(("other", gettext("All others"), self.text(self.found.other.total), ""))
        return found

    def step_text(self, step: Step) -> str:
        return step_text(step, self.found.today, of_one_day=self.query.span.days == 1)

    @property
    def fiscal_text(self) -> str:
        """Return the fiscal year or quarter of the query; empty if it is none."""
        return fiscal_text(self.query, settings.FISCAL_YEAR_START)

    @property
    def span_text(self) -> str:
        return span_text(self.query.span, self.found.today)

    @property
    def compared_text(self) -> str:
        return "" if self.compared is None else span_text(self.compared, self.found.today)

    @cached_property
    def figures(self) -> list[tuple[str, str, list[tuple[str, str]]]]:
        """Return the chart as a table: each bar with its sum, and its parts with their addresses."""
        groups = [*self.found.charted, *([self.found.other] if any(self.found.other.bars) else [])]
        return [
            (self.step_text(step), self.text(sum((group.bars[place] for group in groups), Decimal(0))),
             [(self.text(group.bars[place]), self._bar(group, step)) for group in groups])
            for place, step in enumerate(self.found.steps)
        ]  # fmt: skip

    # Options of the form

    @property
    def options(self) -> dict[str, list[Option]]:
        """Return the options of each field of the form. The usual step of a range is never marked as chosen."""
        query = self.query
        steps = [code for code in STEPS if code != "hour" or query.span.days <= LONGEST_OF_HOURS]
        others = [code for code in DIMENSIONS if code not in query.by[:1]]
        return {
            "range": _options(PRESETS, PRESET, query.preset), "metric": _options(METRICS, METRIC, query.metric),
            "step": _options(steps, STEP, *({query.step} - {usual_step(query.span)})),
            "by": _options(DIMENSIONS, DIMENSION, *query.by[:1]), "then_by": _options(others, DIMENSION, *query.by[1:]),
            "column": _options(COLUMNS, COLUMN, *query.columns),
        }  # fmt: skip

    @property
    def chips(self) -> list[Chip]:
        found = [
            Chip(DIMENSION[dimension], name_of(dimension, "" if value == NAMELESS else value, self.called).text,
                 f"?{self.query.without(dimension, value).address}")
            for dimension, values in self.query.filters
            for value in values
        ]  # fmt: skip
        if self.query.search:
            found.append(Chip(gettext("Name contains"), self.query.search, f"?{replace(self.query, search='').address}"))
        return found

    @property
    def unfiltered(self) -> str:
        return f"?{replace(self.query, filters=(), search='').address}"

    def kept(self, *but: str) -> list[tuple[str, str]]:
        """Return the parameters of the address that a form repeats, without its own fields (`but`)."""
        return [(name, value) for name, value in parse_qsl(self.query.address) if name not in but]

    @property
    def heads(self) -> list[tuple[str, Any, str, str]]:
        """Return for each column its code, its words, the address that sorts by it, and its current order."""
        names = {"name": self.groups_title, "total": self.metric_text, **COLUMN}
        return [self._head(code, names[code]) for code in ("name", *self.order)]

    def _head(self, code: str, text: Any) -> tuple[str, Any, str, str]:
        now, down = self.query.sort.removeprefix("-") == code, self.query.sort.startswith("-")
        # a first click sorts names up and figures down, a second one the other way
        other_way = down if now else code == "name"
        wanted = replace(self.query, sort=code if other_way else f"-{code}")
        return code, text, f"?{wanted.address}", ("descending" if down else "ascending") if now else "none"


def _options(codes: Iterable[str], words: Mapping[str, Any], *chosen: str) -> list[Option]:
    return [Option(code, words[code], code in chosen) for code in codes]


def _percent(changed: Decimal | None) -> str:
    """Format a change in percent; above tenfold in words, because the base is next to nothing."""
    if changed is None:
        return ""
    return gettext("more than tenfold") if changed > TENFOLD else signed_percent(changed * 100)


def _class(code: str, group: Group) -> str:
    wide = "" if code == "total" else "wide"
    return f"{wide} {sign(group.change)}".strip() if code == "change" else wide


def _following(by: Sequence[str]) -> Iterable[str]:
    """Yield the dimensions that follow the last of the groups."""
    name = by[-1] if by else "team"
    for _step in range(len(NEXT)):
        name = NEXT[name] if by else name
        yield name
        by = by or (name,)
