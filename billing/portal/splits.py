"""The lines of a month split by one thing: every split adds up to the same total, what has no name included.

Workloads and queues are not on a line: a line is shared out over its jobs by the usage that made it, to the cent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import msgspec

from billing.invoices.line_rollups import Charged
from billing.portal.statements import AnyVerdict, StatementLine
from billing.rating.reference_data import ReferenceData
from billing.usage.gpu_time_by_job import job_sums
from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.money import round_to, split_amount
from pricing.rate_card import SLICE_HOURS, UnpricedError
from pricing.rating import GpuUsage, LineKey, gpu_key

ZERO = Decimal("0.00")
ROWS_SHOWN = 50


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A line or a part of it that belongs to one job; `job` and `queue` are empty where nobody said them.

    `share`: the part of the line's usage that it is.
    """

    line: Charged
    amount: Decimal
    job: str = ""
    queue: str = ""
    share: Fraction = Fraction(1)


class SplitRow(msgspec.Struct, gc=False):
    """One name of a split. `label` empty: what has no such name; `line` the largest line in it, to look further."""

    label: str
    line: Charged
    largest: Decimal
    gpu: Decimal = ZERO
    tokens: Decimal = ZERO
    adjustments: Decimal = ZERO

    @property
    def total(self) -> Decimal:
        return self.gpu + self.tokens + self.adjustments


NAMES: Mapping[str, Callable[[Piece], str]] = {
    "team": lambda piece: piece.line.key.team,
    "namespace": lambda piece: piece.line.key.namespace,
    "workload": lambda piece: piece.job,
    "queue": lambda piece: piece.queue,
    "consumer": lambda piece: piece.line.key.consumer,
    "model": lambda piece: piece.line.key.sku if piece.line.key.kind == "tokens" else "",
    "accelerator": lambda piece: piece.line.key.sku if piece.line.key.kind != "tokens" else "",
    "site": lambda piece: piece.line.key.cluster,
}
BY_JOB = frozenset({"workload", "queue"})


def split(pieces: Iterable[Piece], by: str) -> list[SplitRow]:
    """The pieces by one of NAMES, the largest first, what has no name last.

    A month of a thousand teams adds up 25,000 of them for a page: nothing here is what Python's collector looks at.
    """
    name, rows = NAMES[by], dict[str, SplitRow]()
    for piece in pieces:
        label, amount, line = name(piece), piece.amount, piece.line
        row = rows.get(label)
        if row is None:
            row = rows[label] = SplitRow(label, line, amount)
        elif amount > row.largest:
            row.line, row.largest = line, amount
        kind = line.key.kind
        if kind == "gpu":
            row.gpu += amount
        elif kind == "tokens":
            row.tokens += amount
        else:
            row.adjustments += amount
    return sorted(rows.values(), key=lambda row: (not row.label, -row.total, row.label))


def first_rows(rows: Sequence[SplitRow]) -> tuple[list[SplitRow], Decimal, int]:
    """What a page shows of a split; what the rest comes to, and how many rows it is."""
    beyond = rows[ROWS_SHOWN:]
    return list(rows[:ROWS_SHOWN]), sum((row.total for row in beyond), ZERO), len(beyond)


def whole_lines(lines: Iterable[Charged]) -> list[Piece]:
    """Every line as one piece."""
    return [Piece(line, line.amount) for line in lines]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the lines were made of: the time they are about, and what a close (or none yet) knew of it."""

    window: Interval
    month: str
    before: int
    reference_data: ReferenceData


def by_job(lines: Sequence[StatementLine], seen: Seen, verdicts: Iterable[AnyVerdict]) -> list[Piece]:
    """Lines of devices shared out over the jobs that made them, adjustments over the jobs that were judged so.

    Tokens, late usage of earlier months and what the platform carries stay whole, without a job.
    """
    usage = _usage_by_line(lines, seen)
    judged: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for verdict in verdicts:
        place = (verdict.team, verdict.cluster, verdict.namespace, verdict.policy, verdict.reason)
        if not verdict.shadow:
            judged[place].add(verdict.job)
    pieces: list[Piece] = []
    for line in lines:
        pieces += _shared(line, usage, judged)
    return pieces


Jobs = dict[tuple[str, str], Decimal]


def _shared(
    line: StatementLine, usage: Mapping[LineKey, Jobs], judged: Mapping[tuple[str, ...], set[str]]
) -> list[Piece]:
    key = line.key
    jobs = usage.get(key.changed(kind="gpu", policy="", reason=""), {}) if key.kind in ("gpu", "efficiency") else {}
    if key.kind == "efficiency":
        named = judged.get((key.team, key.cluster, key.namespace, key.policy, key.reason), set())
        jobs = {name: amount for name, amount in jobs.items() if name[0] in named}
    if not jobs:
        return [Piece(line, line.amount)]
    names, whole = sorted(jobs), Fraction(sum(jobs.values()))
    amounts = split_amount(line.amount, [jobs[name] for name in names])
    return [
        Piece(line, amount, *name, Fraction(jobs[name]) / whole) for name, amount in zip(names, amounts, strict=True)
    ]


def part_lines(pieces: Iterable[Piece]) -> list[StatementLine]:
    """The pieces as lines of their own: the amount to the cent, and their share of the quantity."""
    return [
        replace(piece.line, amount=piece.amount, quantity=round_to(Fraction(piece.line.quantity) * piece.share, 6))
        for piece in pieces
        if isinstance(piece.line, StatementLine)
    ]


def _usage_by_line(lines: Sequence[StatementLine], seen: Seen) -> dict[LineKey, Jobs]:
    """Base units of each line of devices by job and queue, found by the owners and prices that its close knew."""
    places = {(line.key.cluster, line.key.namespace) for line in lines if line.key.namespace and not line.key.correction}
    if not places:
        return {}
    reference_data = seen.reference_data
    changes = reference_data.card.changes() | reference_data.namespaces.changes() | reference_data.policies.changes()
    pieces = seen.window.cut(changes)
    found: dict[LineKey, Jobs] = defaultdict(lambda: defaultdict(Decimal))
    for item in job_sums(pieces, EpochFilter(before=seen.before), places):
        at = pieces[item.piece].start
        owner = reference_data.namespaces.owner(item.cluster, item.namespace, at)
        if owner is None or owner.platform:
            continue
        usage = GpuUsage(
            owner.team, False, item.cluster, item.namespace, item.accelerator, item.resource, at, item.device_us,
            item.unit_us, seen.month,
        )  # fmt: skip
        try:
            version, price = reference_data.card.gpu_price(item.accelerator, item.resource, at)
        except UnpricedError:
            continue
        measured = item.unit_us if price.unit == SLICE_HOURS else item.device_us
        found[gpu_key(usage, version.name, price)][item.job, item.queue] += measured
    return found
