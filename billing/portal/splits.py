"""Splits of a month's lines by one dimension: every split adds up to the same total, with a row for lines without a name.

Workloads and queues are not on a line: a line is shared out over its jobs by the usage that made it, to the cent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import msgspec

from billing.invoices.line_rollups import Charged, StatementLine
from billing.portal.statements import AnyVerdict
from billing.rating.grains import Grain
from billing.rating.readings import Reading
from billing.rating.reference_data import ReferenceData
from billing.rating.walk import Slice, Verdicts, adjusting, rated_usage
from billing.usage.scope import EpochFilter
from metering.intervals import Interval
from pricing.meters import SECTIONS
from pricing.money import EXACT, round_to, split_amount
from pricing.rating import LineKey

ZERO = Decimal("0.00")
ROWS_SHOWN = 50


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Line, or the part of it that belongs to one job; `job` and `queue` are empty if they are unknown.

    `share`: the piece's part of the line's usage.
    """

    line: Charged
    amount: Decimal
    job: str = ""
    queue: str = ""
    share: Fraction = Fraction(1)


class SplitRow(msgspec.Struct, gc=False):
    """Name of a split with its sums. `label`: empty for lines without a name; `line`: its largest line, for a drill-down."""

    label: str
    line: Charged
    largest: Decimal
    parts: dict[str, Decimal] = msgspec.field(default_factory=lambda: dict.fromkeys(SECTIONS, ZERO))
    """Amounts by section."""

    @property
    def gpu(self) -> Decimal:
        return self.parts["gpu"]

    @property
    def tokens(self) -> Decimal:
        return self.parts["tokens"]

    @property
    def total(self) -> Decimal:
        return sum(self.parts.values(), ZERO)


NAMES: Mapping[str, Callable[[Piece], str]] = {
    "team": lambda piece: piece.line.key.team,
    "namespace": lambda piece: piece.line.key.namespace,
    "workload": lambda piece: piece.job,
    "queue": lambda piece: piece.queue,
    "consumer": lambda piece: piece.line.key.consumer,
    "model": lambda piece: piece.line.key.model,
    "accelerator": lambda piece: piece.line.key.device,
    "site": lambda piece: piece.line.key.cluster,
}
BY_JOB = frozenset({"workload", "queue"})


def split(pieces: Iterable[Piece], by: str) -> list[SplitRow]:
    """Sum the pieces by one of NAMES, largest first, the row without a name last.

    A month of a thousand teams sums 25,000 pieces for a page: `gc=False` keeps them out of Python's garbage collector.
    """
    name, rows = NAMES[by], dict[str, SplitRow]()
    for piece in pieces:
        label, amount, line = name(piece), piece.amount, piece.line
        row = rows.get(label)
        if row is None:
            row = rows[label] = SplitRow(label, line, amount)
        elif amount > row.largest:
            row.line, row.largest = line, amount
        row.parts[line.key.what.section] += amount
    return sorted(rows.values(), key=lambda row: (not row.label, -row.total, row.label))


def first_rows(rows: Sequence[SplitRow]) -> tuple[list[SplitRow], Decimal, int]:
    """Return the rows that a page shows of a split, the sum of the rest, and the number of rows in the rest."""
    beyond = rows[ROWS_SHOWN:]
    return list(rows[:ROWS_SHOWN]), sum((row.total for row in beyond), ZERO), len(beyond)


def whole_lines(lines: Iterable[Charged]) -> list[Piece]:
    return [Piece(line, line.amount) for line in lines]


@dataclass(frozen=True, slots=True)
class Seen:
    """Basis of the lines: their time, and the data known at their close (or now).

    `until`: the end of usage, for a part of the month.
    """

    window: Interval
    month: str
    before: int
    reference_data: ReferenceData
    until: datetime | None = None


def by_job(lines: Sequence[StatementLine], seen: Seen, verdicts: Iterable[AnyVerdict]) -> list[Piece]:
    """Share out lines of devices over the jobs that made them, and adjustments over the jobs that were judged so.

    Tokens, late usage of earlier months and unused committed hours stay whole, without a job.
    """
    usage = _usage_by_line(lines, seen, adjusting(verdicts))
    return [piece for line in lines for piece in _shared(line, usage.get(line.key, {}))]


Jobs = dict[tuple[str, str], Decimal]


def _shared(line: StatementLine, jobs: Jobs) -> list[Piece]:
    if not jobs:
        return [Piece(line, line.amount)]
    # sorted, so that the remaining cents fall to the same jobs on every page
    names, whole = sorted(jobs), Fraction(sum(jobs.values()))
    amounts = split_amount(line.amount, [jobs[name] for name in names])
    return [
        Piece(line, amount, *name, Fraction(jobs[name]) / whole) for name, amount in zip(names, amounts, strict=True)
    ]


def part_lines(pieces: Iterable[Piece]) -> list[StatementLine]:
    """Return the pieces as lines of their own: the amount to the cent, and their share of the quantity."""
    return [
        replace(piece.line, amount=piece.amount, quantity=round_to(Fraction(piece.line.quantity) * piece.share, 6))
        for piece in pieces
        if isinstance(piece.line, StatementLine)
    ]


def _usage_by_line(lines: Sequence[StatementLine], seen: Seen, verdicts: Verdicts) -> Mapping[LineKey, Jobs]:
    """Sum the base units of each line of devices by job and queue, as its close knew them."""
    keys = [line.key for line in lines if line.key.namespace and not line.key.correction]
    kinds = frozenset(key.kind for key in keys)
    reading = Reading({key.team for key in keys}, {(key.cluster, key.namespace) for key in keys}, (), kinds)
    part = Slice.of(seen.reference_data, seen.window, seen.month, EpochFilter(before=seen.before), until=seen.until)
    found: dict[LineKey, Jobs] = defaultdict(lambda: defaultdict(Decimal))
    for item in rated_usage(part, seen.reference_data, Grain.JOB, reading, verdicts=verdicts, faults={}):
        if item.place.until is None:
            name = item.place.resource, item.place.queue
            found[item.key][name] = EXACT.add(found[item.key][name], item.quantity)
    return found
