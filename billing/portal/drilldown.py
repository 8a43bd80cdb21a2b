"""Drill-down from a line to its usage: by workload, day, pod, hour or request.

Every level is the walk that rates a close, at a finer grain, so that it adds up to the line.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from billing.invoices.line_rollups import StatementLine
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import known_before
from billing.portal.tables import Cell, Column, Table, constant
from billing.rating.efficiency import Verdict
from billing.rating.gathering import consumer_usage, gathered_teams
from billing.rating.grains import Grain
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.walk import RatedUsage, Slice, Verdicts, rated_usage, token_ranges
from billing.usage.capacity_types import capacity_types_of
from billing.usage.grid import DAY, HOUR, this_hour
from billing.usage.models import GpuAllocation
from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_epochs
from billing.usage.store.dimensions import token_names
from billing.usage.store.records import requests_of
from metering.intervals import Interval, day_of, midnight_of, midnights
from metering.records import DETAILS
from pricing.money import EXACT, round_to, split_amount
from pricing.number_text import QUANTITY_PLACES
from pricing.rating import DIVISOR

ROWS_SHOWN = 200
FACTS: Mapping[str, tuple[str, ...]] = {
    "workloads": ("job", "holds", "first", "last"),
    "holds": ("pod", "allocation_id", "node", "first", "last", "end_reason", "devices", "device_fraction",
              "capacity_type", "tags"),
    "days": ("day", "requests"),
    "hours": ("hour", "requests"),
    "requests": ("time", "id", "source", *DETAILS, "tags"),
    "consumers": ("consumer",),
}
"""Facts of a part that are columns of its table, by level."""
COUNTED = dict.fromkeys(("holds", "requests", "devices"), "count")


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a line. `usage` in base units, exact; `quantity` and `amount` are shares that add up to the line's."""

    facts: dict[str, Any]
    usage: Decimal
    quantity: Decimal
    amount: Decimal

    @property
    def details(self) -> str:
        """Return optional fields that a request or an allocation stated, by their names in the record."""
        named = [f"{name} {self.facts[name]}" for name in ("capacity_type", *DETAILS) if name in self.facts]
        return " · ".join([*named, *([self.facts["tags"]] if "tags" in self.facts else [])])


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of a line, or of one part of it, with their sums; `rest`: sum of the `left_out` further parts."""

    parts: list[Part]
    quantity: Decimal
    amount: Decimal
    rest: Part | None = None
    left_out: int = 0

    @property
    def usage(self) -> Decimal:
        return sum((part.usage for part in self.parts), self.rest.usage if self.rest else Decimal(0))

    @property
    def largest(self) -> Decimal:
        return max((part.usage for part in self.parts), default=Decimal(0))


@dataclass(frozen=True, slots=True)
class Scope:
    """Usage that a line is billed for, and the reference data of its close.

    `kept`: the line is of a stored assessment, some minutes old: its parts include later usage, its quantity does not.
    """

    part: Slice
    zone: str
    reference_data: ReferenceData
    kept: bool = False


def scope_of(
    line: StatementLine, period: BillingPeriod, reference_data: ReferenceData | None = None, *, kept: bool = False
) -> Scope:
    """Return the scope of usage of any line; `reference_data` if they are read already."""
    window, epochs = _seen(line, period)
    reference_data = reference_data or reference_data_known(epochs.before)
    part = Slice.of(
        reference_data, window, line.key.charge_period, epochs, correction=line.key.correction,
        gathered=gathered_teams([line.key]),
    )  # fmt: skip
    return Scope(part, period.zone, reference_data, kept)


def _seen(line: StatementLine, period: BillingPeriod) -> tuple[Interval, EpochFilter]:
    close_seq = known_before(period)
    if not line.key.correction:
        return period.window, EpochFilter(before=close_seq)
    late = BillingPeriod.objects.get(month=line.key.charge_period)
    return Interval(late.start, late.end), late_epochs(close_seq)


def workloads(line: StatementLine, scope: Scope, jobs: Sequence[str] | None = None) -> Breakdown:
    """Split the line by workload; an adjustment by the `jobs` that it judged only."""
    rows = [
        {"job": job, "holds": len({item.place.allocation for item in items}), **_span(items), "usage": _usage(items)}
        for job, items in _grouped(_devices(line, scope, Grain.POD, jobs), lambda item: item.place.resource)
    ]
    return share_out(line, sorted(rows, key=lambda row: (-row["usage"], row["job"])), kept=scope.kept)


def holds(line: StatementLine, scope: Scope, job: str, share: Part) -> Breakdown:
    """Split one workload of the line by allocation: the devices that each pod held, with their first and last instant."""
    found = [item for item in _devices(line, scope, Grain.POD, [job]) if item.place.resource == job]
    grouped = dict(_grouped(found, lambda item: item.place.allocation))
    spans = {name: _span(items) for name, items in grouped.items()}
    types = capacity_types_of({name: span["first"] for name, span in spans.items()})
    rows = [
        {
            "allocation_id": one.allocation_id, "pod": one.pod, "node": one.node, "resource": one.resource,
            "devices": one.quantity, "device_fraction": one.device_fraction, "end_reason": one.end_reason,
            **({"capacity_type": types[one.pk]} if one.pk in types else {}),
            **({"tags": _tags_text(one.facts["tags"])} if "tags" in one.facts else {}),
            **spans[one.pk], "usage": _usage(grouped[one.pk]),
        }
        for one in GpuAllocation.objects.filter(pk__in=grouped)
    ]  # fmt: skip
    return share_out(line, sorted(rows, key=lambda row: (row["first"], row["allocation_id"])), of=share)


def days_allocated(line: StatementLine, scope: Scope, jobs: Sequence[str] | None = None) -> Breakdown:
    """Split the line by local day."""
    found = _devices(line, scope, Grain.DAY, jobs)
    rows = [{"day": day, "usage": _usage(items)} for day, items in _grouped(found, lambda item: _day(item, scope))]
    return share_out(line, rows, kept=scope.kept)


def _devices(line: StatementLine, scope: Scope, grain: Grain, jobs: Sequence[str] | None) -> Iterator[RatedUsage]:
    key = line.key
    verdicts: Verdicts = {
        (key.team, key.cluster, key.namespace, job, key.policy): _verdict(line, job) for job in jobs or ()
    }  # fmt: skip
    return _rated(line, scope, grain, verdicts, namespaces=[(key.cluster, key.namespace)])


def _verdict(line: StatementLine, job: str) -> Verdict:
    """Return a verdict without amounts, so that the walk yields the usage of a job that the line adjusts."""
    key, nothing = line.key, Decimal(0)
    return Verdict(key.team, key.cluster, key.namespace, job, key.policy, nothing, nothing, nothing, None, None, nothing,
                   key.reason)  # fmt: skip


def _rated(
    line: StatementLine, scope: Scope, grain: Grain, verdicts: Verdicts, *,
    namespaces: Sequence[tuple[str, str]] = (), dimensions: Sequence[int] = (),
) -> Iterator[RatedUsage]:  # fmt: skip
    """Return the usage of the line. A team that can no longer be rated has none under its commitments."""
    window = scope.part.window
    cuts = midnights(window.start, window.end, scope.zone) if grain is Grain.DAY else ()
    reading = Reading({line.key.team}, namespaces, dimensions, frozenset({line.key.kind}))
    items = rated_usage(scope.part, scope.reference_data, grain, reading, verdicts=verdicts, cuts=cuts, faults={})
    return (item for item in items if item.key == line.key and item.place.until is None)


def _grouped(
    items: Iterable[RatedUsage], name: Callable[[RatedUsage], Any]
) -> list[tuple[Any, list[RatedUsage]]]:
    """Group the items by name, in order, without groups whose usage is zero."""
    found: dict[Any, list[RatedUsage]] = defaultdict(list)
    for item in items:
        found[name(item)].append(item)
    return [(one, found[one]) for one in sorted(found) if _usage(found[one])]


def _usage(items: Collection[RatedUsage]) -> Decimal:
    total = Decimal(0)
    for item in items:
        total = EXACT.add(total, item.quantity)
    return total


def _span(items: Collection[RatedUsage]) -> dict[str, datetime]:
    return {
        "first": min(item.first for item in items if item.first), "last": max(item.last for item in items if item.last)
    }  # fmt: skip


def _day(item: RatedUsage, scope: Scope) -> date:
    return day_of(item.place.start or scope.part.window.start, scope.zone)


def days_of_tokens(line: StatementLine, scope: Scope) -> Breakdown:
    found = _tokens(line, scope, Grain.DAY)
    rows = [
        {"day": day, "requests": _requests(items), "usage": _usage(items)}
        for day, items in _grouped(found, lambda item: _day(item, scope))
    ]
    return share_out(line, rows, kept=scope.kept)


def hours_of_tokens(line: StatementLine, scope: Scope, day: date, share: Part) -> Breakdown:
    """Split a local day of the line by UTC hour; an hour that a midnight cuts begins, or ends, with it."""
    inside = _local_day(scope, day)
    items = _tokens(line, _within(scope, inside), Grain.HOUR)
    found = _grouped(items, lambda item: max(item.place.start or inside.start, inside.start))
    rows = [{"hour": hour, "requests": _requests(items), "usage": _usage(items)} for hour, items in found]
    return share_out(line, rows, of=share)


def requests(line: StatementLine, scope: Scope, day: date, hour: datetime, share: Part) -> Breakdown:
    """Return the first requests of one hour of a token line, and the sum of the rest: an hour may have millions."""
    part = _within(_within(scope, _local_day(scope, day)), Interval(hour, this_hour(hour) + HOUR)).part
    names = token_names(line.key.consumer, line.key.sku)
    ranges = token_ranges(part, scope.reference_data, line.key, {name.source for name in names})
    rows = requests_of(ranges, names, part.epochs, line.key.token_class, ROWS_SHOWN)
    rows = [row | ({"tags": _tags_text(row["tags"])} if "tags" in row else {}) for row in rows]
    # the first row carries number and usage of all requests of the hour
    left_out = rows[0]["number"] - len(rows) if rows else 0
    if left_out:
        rows.append({"usage": rows[0]["usage_of_all"] - sum(row["usage"] for row in rows)})
    whole = share_out(line, rows, of=share)
    return replace(whole, parts=whole.parts[:-1], rest=whole.parts[-1], left_out=left_out) if left_out else whole


def _tags_text(tags: Mapping[str, str | None]) -> str:
    """Return tags as text for pages and files; a value that was not kept is `(other)`.

    >>> _tags_text({"product": "chat", "customer": None})
    'customer=(other) product=chat'
    """
    return " ".join(f"{key}={'(other)' if value is None else value}" for key, value in sorted(tags.items()))


def _tokens(line: StatementLine, scope: Scope, grain: Grain) -> Iterator[RatedUsage]:
    return _rated(line, scope, grain, {}, dimensions=_dimensions(line, scope))


def _dimensions(line: StatementLine, scope: Scope) -> list[int]:
    """Return the token dimensions that the line was reported under: of its consumer, or of all of the team's."""
    if line.key.consumer:
        return [name.number for name in token_names(line.key.consumer, line.key.sku)]
    return NamesByTeam(scope.reference_data).dimensions([line.key.team])


def consumers(line: StatementLine, scope: Scope) -> Breakdown:
    """Split a line of all consumers of a team by consumer, the largest first."""
    used = consumer_usage([line.key], scope.part, scope.reference_data, _dimensions(line, scope)).get(line.key, {})
    rows = [{"consumer": name, "usage": usage} for name, usage in used.items()]
    return share_out(line, sorted(rows, key=lambda row: (-Decimal(row["usage"]), str(row["consumer"]))), kept=scope.kept)


def _requests(items: Collection[RatedUsage]) -> int:
    return sum(item.requests for item in items)


def first_rows(breakdown: Breakdown) -> Breakdown:
    """Limit a level to the rows that a page shows, with the rest in one sum."""
    beyond = breakdown.parts[ROWS_SHOWN:]
    if not beyond:
        return breakdown
    sums = [sum((getattr(part, name) for part in beyond), Decimal(0)) for name in ("usage", "quantity", "amount")]
    return replace(breakdown, parts=breakdown.parts[:ROWS_SHOWN], rest=Part({}, *sums), left_out=len(beyond))


def share_out(
    line: StatementLine, rows: Sequence[dict[str, Any]], of: Part | None = None, *, kept: bool = False
) -> Breakdown:
    """Give each row its share of the line (or of a part of it) by largest remainder, so that shares add up.

    kept: the line is of a stored assessment, some minutes old; its quantity is shared out whatever was used since.
    """
    quantity, amount = (of.quantity, of.amount) if of else (line.quantity, line.amount)
    weights = [row["usage"] for row in rows]
    if not sum(weights):
        return Breakdown([], quantity, amount)
    whole = round_to(Fraction(sum(weights)) / DIVISOR[line.key.unit], QUANTITY_PLACES)
    exact = whole if of is None and not kept else quantity
    quantities, amounts = split_amount(exact, weights, QUANTITY_PLACES), split_amount(amount, weights)
    parts = [
        Part({name: value for name, value in row.items() if name != "usage"}, row["usage"], *shares)
        for row, *shares in zip(rows, quantities, amounts, strict=True)
    ]
    return Breakdown(parts, exact, amount)


def level_tables(levels: Mapping[str, Breakdown], line: StatementLine, month: str) -> dict[str, Callable[[], Table]]:
    """Return a table of every row for each level of the page; requests that are too many to list are one row."""
    return {name: partial(_table, name, rows, line, month) for name, rows in levels.items()}


def _table(name: str, rows: Breakdown, line: StatementLine, month: str) -> Table:
    facts = [fact for fact in FACTS[name] if any(fact in part.facts for part in rows.parts)]
    cells = [
        *(Column(fact, COUNTED.get(fact, "text"), partial(_fact, fact)) for fact in facts),
        Column("base_units", "quantity", "usage"), Column("quantity", "quantity"), constant("unit", line.key.unit),
        Column("amount", "money"),
    ]  # fmt: skip
    return Table.of(f"{name}-{line.key.sku}-{month}", [*rows.parts, *([rows.rest] if rows.rest else ())], cells)


def _fact(name: str, part: Part) -> Cell:
    found: Cell = part.facts.get(name)
    return found


def _local_day(scope: Scope, day: date) -> Interval:
    return Interval(*(midnight_of(one, scope.zone) for one in (day, day + DAY)))


def _within(scope: Scope, inside: Interval) -> Scope:
    """Limit the tokens of a scope to an interval."""
    tokens = [cut for piece in scope.part.tokens if (cut := piece.overlap(inside))]
    return replace(scope, part=replace(scope.part, tokens=tokens))
