"""From a line down to what was used: the same usage that made the line, summed by workload, day, hold or hour.

A line covers the pieces of its month in which its owner, its price version and its policy were in force; a close saw
the epochs before it, and as late usage those since the close before. Both are found again here exactly as
`billing.rating.assessment` finds them, so every level adds up to the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from billing.invoices.models import BillingPeriod
from billing.portal.statements import StatementLine
from billing.rating.interruptions import carried_rules
from billing.rating.reference_data import ReferenceData
from billing.rating.retroactive import CorrectedRateCard
from billing.rating.selectors import reference_data_known
from billing.usage.interruptions import ENDS_OF_HOLD, FOREVER
from billing.usage.selectors import JOB, EpochFilter, last_ordinal, late_epochs
from billing.usage.token_hours import OF_THE_NAMES, whole_hours
from billing.usage.token_sums import COUNTS
from metering.intervals import Interval
from pricing.commitments import KIND as COMMITMENT
from pricing.contexts import Context, class_and_context, parse_context
from pricing.money import round_to, split_amount
from pricing.number_text import QUANTITY_PLACES
from pricing.rate_card import SLICE_HOURS, RateCard, UnpricedError
from pricing.rating import DIVISOR

ROWS_SHOWN = 200
DAY = timedelta(days=1)
CLASS_SUM = {
    "input": "t.input_tokens - t.cache_read_input_tokens - t.cache_creation_input_tokens",
    "cache_read": "t.cache_read_input_tokens",
    "cache_creation": "t.cache_creation_input_tokens",
    "output": "t.output_tokens",
}
EVERY_PROMPT = Context(0, None)
OF_THE_LINE = "{row}.input_tokens >= %(shortest)s AND (%(longest)s::bigint IS NULL OR {row}.input_tokens <= %(longest)s)"
"""Which requests the line prices, by the length of their prompts."""

EVERYTHING = "SELECT '-infinity'::timestamptz"
CARRIED = f"""SELECT greatest(a.started_at, CASE WHEN %(cap_us)s::bigint IS NULL THEN a.started_at
                              ELSE e.ended_at - %(cap_us)s * interval '1 microsecond' END)
              FROM ({ENDS_OF_HOLD}) AS e (ended_at, end_reason)
              WHERE e.end_reason = %(reason)s AND e.ended_at >= %(from)s AND e.ended_at < %(until)s"""  # noqa: S608
"""Since when a hold belongs to the line: always, or as far back from its end as the platform carries it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line. `usage` in base units, exact; `quantity` and `amount` are shares that add up to the line's."""

    facts: dict[str, Any]
    usage: Decimal
    quantity: Decimal
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of a line, or of one part of it, with what they add up to; `rest` are `left_out` more in one sum."""

    parts: list[Part]
    quantity: Decimal
    amount: Decimal
    rest: Part | None = None
    left_out: int = 0

    @property
    def usage(self) -> Decimal:
        """Sum of the parts in base units."""
        return sum((part.usage for part in self.parts), self.rest.usage if self.rest else Decimal(0))

    @property
    def largest(self) -> Decimal:
        return max((part.usage for part in self.parts), default=Decimal(0))


@dataclass(frozen=True, slots=True)
class Scope:
    """Which usage a line is made of: pieces of time, and the epochs and books that its close saw."""

    window: Interval
    zone: str
    epochs: EpochFilter
    pieces: list[Interval]
    reference_data: ReferenceData
    kept: bool = False
    """Whether the line is of an assessment some minutes old: usage that came since is in its parts, not in its quantity."""

    products: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    """Accelerators and resources of the namespaces that were asked for already."""

    @property
    def card(self) -> CorrectedRateCard:
        return self.reference_data.card


def scope_of(
    line: StatementLine, period: BillingPeriod, reference_data: ReferenceData | None = None, *, kept: bool = False
) -> Scope:
    """The pieces of time and epochs of any line; `reference_data` where they are read already."""
    window, epochs = _seen(line, period)
    reference_data = reference_data or reference_data_known(epochs.before)
    card = reference_data.card
    if line.key.kind == "tokens":
        return Scope(window, period.zone, epochs, _priced(window.cut(card.changes()), card, line), reference_data, kept)
    book = reference_data.namespaces
    policies = reference_data.policies if line.key.kind == "efficiency" else None
    pieces = _committed(window.cut(reference_data.device_changes()), reference_data, line)
    owned = []
    for piece in _priced(pieces, card, line):
        owner = book.owner(line.key.cluster, line.key.namespace, piece.start)
        policy = policies.at(piece.start) if policies else None
        ours = owner is not None and owner.team == line.key.team and not owner.platform
        if ours and (policies is None or (policy is not None and policy.name == line.key.policy)):
            owned.append(piece)
    return Scope(window, period.zone, epochs, owned, reference_data, kept)


def _priced(pieces: Sequence[Interval], card: CorrectedRateCard, line: StatementLine) -> list[Interval]:
    return [piece for piece in pieces if card.version_name(line.key, piece.start) == line.key.price_version]


def _committed(pieces: Sequence[Interval], reference_data: ReferenceData, line: StatementLine) -> list[Interval]:
    """Of a line under a commitment the pieces in which that is in force."""
    commitment = reference_data.commitments.named(line.key.policy) if line.key.kind == COMMITMENT else None
    return [piece for piece in pieces if commitment is None or commitment.covers(piece.start)]


def _seen(line: StatementLine, period: BillingPeriod) -> tuple[Interval, EpochFilter]:
    this = period.ordinal if period.ordinal is not None else last_ordinal() + 1
    if not line.key.correction:
        return Interval(period.start, period.end), EpochFilter(before=this)
    late = BillingPeriod.objects.get(month=line.key.charge_period)
    return Interval(late.start, late.end), late_epochs(this)


def workloads(line: StatementLine, scope: Scope, jobs: Sequence[str] | None = None) -> Breakdown:
    """The line by workload; for an adjustment only the `jobs` that it judged."""
    columns = f"{JOB} AS job, count(DISTINCT a.id) AS holds, min(greatest(s.start, p.lo, b.since)) AS first, " + (
        "max(least(s.until, p.hi)) AS last"
    )
    return share_out(line, _held(line, scope, columns, group="job", order="usage DESC, job", jobs=jobs), kept=scope.kept)


def holds(line: StatementLine, scope: Scope, job: str, share: Part) -> Breakdown:
    """One workload's holds of devices: which pod had which devices from when to when."""
    columns = (
        "a.allocation_id, a.pod, a.node, a.resource, a.quantity AS devices, a.device_fraction, a.end_reason,"
        " min(greatest(s.start, p.lo, b.since)) AS first, max(least(s.until, p.hi)) AS last"
    )
    group = "a.id"
    rows = _held(line, scope, columns, group=group, order="first, a.allocation_id", jobs=[job])
    return share_out(line, rows, of=share)


def days_held(line: StatementLine, scope: Scope, jobs: Sequence[str] | None = None) -> Breakdown:
    """The line by local day."""
    columns = "(p.lo AT TIME ZONE %(zone)s)::date AS day"
    rows = _held(line, _by_day(scope), columns, group="day", order="day", jobs=jobs)
    return share_out(line, rows, kept=scope.kept)


def _held(
    line: StatementLine, scope: Scope, columns: str, *, group: str, order: str, jobs: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Held devices of a line; `usage` is in the microseconds that its price counts."""
    skus = _skus(line, scope)
    if not skus or not scope.pieces:
        return []
    measured = "a.quantity::numeric" if line.key.unit == SLICE_HOURS else "a.quantity * a.device_fraction"
    only = "" if jobs is None else f"AND {JOB} = ANY(%(jobs)s)"
    carried = line.key.kind == "interruption"
    return _rows(
        f"""SELECT {columns},
                   sum({measured} * microseconds(least(s.until, p.hi) - greatest(s.start, p.lo, b.since))) AS usage
            FROM unnest(%(lo)s::timestamptz[], %(hi)s::timestamptz[]) AS p (lo, hi)
            JOIN usage_allocationrevision s ON s.start < p.hi AND s.until > p.lo
            JOIN usage_gpuallocation a ON a.id = s.allocation_id
            JOIN unnest(%(accelerators)s::text[], %(resources)s::text[]) AS k (accelerator, resource)
                 ON k.accelerator = a.accelerator AND k.resource = a.resource
            CROSS JOIN LATERAL ({CARRIED if carried else EVERYTHING}) AS b (since)
            WHERE p.hi > b.since AND s.until > b.since AND s.epoch >= %(first)s AND s.epoch < %(before)s
                  AND a.cluster = %(cluster)s AND a.namespace = %(namespace)s {only}
            GROUP BY {group} ORDER BY {order}""",  # noqa: S608 - made of this module's own words
        {
            "lo": [piece.start for piece in scope.pieces], "hi": [piece.end for piece in scope.pieces],
            "accelerators": [sku[0] for sku in skus], "resources": [sku[1] for sku in skus],
            "first": scope.epochs.first, "before": scope.epochs.before, "cluster": line.key.cluster,
            "namespace": line.key.namespace, "jobs": list(jobs or ()), "zone": scope.zone,
            **(_carrying_rule(line) if carried else {}),
        },
    )  # fmt: skip


def _carrying_rule(line: StatementLine) -> dict[str, Any]:
    """The rule by which the platform carries the line."""
    rule = next(one for one in carried_rules() if (one.policy, one.reason) == (line.key.policy, line.key.reason))
    return {"reason": rule.reason, "from": rule.valid_from, "until": rule.valid_until or FOREVER, "cap_us": rule.cap_us}


def _skus(line: StatementLine, scope: Scope) -> list[tuple[str, str]]:
    """The accelerators and resources of the namespace that the line's price is the price of."""
    if not scope.pieces:
        return []
    place = (line.key.cluster, line.key.namespace)
    if place not in scope.products:
        rows = _rows(
            "SELECT DISTINCT accelerator, resource FROM usage_gpuallocation WHERE cluster = %(cluster)s "
            "AND namespace = %(namespace)s AND started_at < %(end)s",
            {"cluster": place[0], "namespace": place[1], "end": scope.window.end},
        )
        scope.products[place] = [(row["accelerator"], row["resource"]) for row in rows]
    return [
        product for product in scope.products[place] if _is_of(line, scope.card, *product, scope.pieces[0].start)
    ]


def _is_of(line: StatementLine, card: RateCard, accelerator: str, resource: str, at: datetime) -> bool:
    try:
        _, found = card.gpu_price(accelerator, resource, at)
    except UnpricedError:
        return False
    return (found.sku, found.accelerator, found.unit) == (line.key.sku, line.key.accelerator, line.key.unit)


def days_of_tokens(line: StatementLine, scope: Scope) -> Breakdown:
    """A token line by local day."""
    columns = "(t.at AT TIME ZONE %(zone)s)::date AS day, sum(t.requests)::bigint AS requests"
    return share_out(line, _tokens(line, _by_day(scope), columns, group="day"), kept=scope.kept)


def hours_of_tokens(line: StatementLine, scope: Scope, day: datetime, share: Part) -> Breakdown:
    """One day of a token line by hour."""
    inside = Interval(day, _next_midnight(day, scope.zone))
    columns = "date_trunc('hour', t.at) AS hour, sum(t.requests)::bigint AS requests"
    return share_out(line, _tokens(line, _within(scope, inside), columns, group="hour"), of=share)


def requests(line: StatementLine, scope: Scope, hour: datetime, share: Part) -> Breakdown:
    """The first requests of one hour of a token line; an hour may have millions, so the rest is summed up there."""
    inside = _within(scope, Interval(hour, hour + timedelta(hours=1)))
    ranges = _owned_ranges(line, inside)
    rows = _rows(
        f"""SELECT t.time, t.id, d.source, d.status, {_class_sum(line)}::numeric AS usage,
                   sum({_class_sum(line)}) OVER ()::numeric AS usage_of_all, count(*) OVER () AS number
            FROM unnest(%(source)s::text[], %(lo)s::timestamptz[], %(hi)s::timestamptz[]) AS r (source, lo, hi)
            CROSS JOIN LATERAL (SELECT * FROM token_event t
                WHERE t.time >= r.lo AND t.time < r.hi AND t.dimension = {OF_THE_NAMES} OFFSET 0) t
            JOIN token_dimension d ON d.id = t.dimension AND d.source = r.source
            WHERE d.consumer = %(consumer)s AND d.model = %(model)s
                  AND t.epoch >= %(first)s AND t.epoch < %(before)s
                  AND {_class_sum(line)} > 0 AND {OF_THE_LINE.format(row="t")}
            ORDER BY t.time, d.source, t.id LIMIT {ROWS_SHOWN}""",  # noqa: S608 - made of this module's own words
        _token_parameters(line, inside, ranges),
    )
    left_out = rows[0]["number"] - len(rows) if rows else 0
    if left_out:
        rows.append({"usage": rows[0]["usage_of_all"] - sum(row["usage"] for row in rows)})
    whole = share_out(line, rows, of=share)
    return replace(whole, parts=whole.parts[:-1], rest=whole.parts[-1], left_out=left_out) if left_out else whole


def first_rows(breakdown: Breakdown) -> Breakdown:
    """What a page shows of a level: as many rows as somebody reads, the rest in one sum."""
    beyond = breakdown.parts[ROWS_SHOWN:]
    if not beyond:
        return breakdown
    sums = [sum((getattr(part, name) for part in beyond), Decimal(0)) for name in ("usage", "quantity", "amount")]
    return replace(breakdown, parts=breakdown.parts[:ROWS_SHOWN], rest=Part({}, *sums), left_out=len(beyond))


def _tokens(line: StatementLine, scope: Scope, columns: str, *, group: str) -> list[dict[str, Any]]:
    """Tokens of a line's class: whole hours from the roll-up, hours that an owner or price change cuts from events.

    Those of a bucket of prompt lengths come from the events alone.
    The events of each stretch are read by themselves (OFFSET 0), by its bounds: joined, all of the ledger would be.
    """
    ranges = _owned_ranges(line, scope)
    if not ranges:
        return []
    names = ", ".join(f"x.{name}" for name in COUNTS[1:])
    return _rows(
        f"""WITH r AS (SELECT *, CASE WHEN date_trunc('hour', lo) = lo THEN lo
                                 ELSE date_trunc('hour', lo) + interval '1 hour' END AS first,
                              date_trunc('hour', hi) AS last
                       FROM unnest(%(source)s::text[], %(lo)s::timestamptz[], %(hi)s::timestamptz[])
                            AS u (source, lo, hi)),
                 e AS (SELECT source, lo, CASE WHEN %(in_buckets)s THEN hi ELSE least(first, hi) END AS hi FROM r
                       WHERE %(in_buckets)s OR lo < first
                       UNION ALL SELECT source, last, hi FROM r WHERE NOT %(in_buckets)s AND first <= last AND last < hi),
                 w AS (SELECT source, first, last FROM r WHERE NOT %(in_buckets)s),
                 t AS ({whole_hours("w")}
                       UNION ALL
                       SELECT x.time, x.dimension, 1, e.source, {names} FROM e CROSS JOIN LATERAL (
                           SELECT * FROM token_event x
                           WHERE x.time >= e.lo AND x.time < e.hi AND x.dimension = {OF_THE_NAMES} OFFSET 0) x
                       WHERE {OF_THE_LINE.format(row="x")} AND x.epoch >= %(first)s AND x.epoch < %(before)s)
            SELECT {columns}, sum({_class_sum(line)})::numeric AS usage FROM t
            JOIN token_dimension d ON d.id = t.dimension AND d.source = t.source
            WHERE d.consumer = %(consumer)s AND d.model = %(model)s
            GROUP BY {group} HAVING sum({_class_sum(line)}) > 0 ORDER BY {group}""",  # noqa: S608 - made of this module's own words
        _token_parameters(line, scope, ranges),
    )


def _class_sum(line: StatementLine) -> str:
    """What of a request or hour `t` the line counts."""
    return CLASS_SUM[class_and_context(line.key.token_class)[0]]


def _prompts(line: StatementLine) -> Context:
    """The lengths of prompts that the line prices; every length where its model has no buckets."""
    context = class_and_context(line.key.token_class)[1]
    return parse_context(context) if context else EVERY_PROMPT


def _token_parameters(
    line: StatementLine, scope: Scope, ranges: Sequence[tuple[str, datetime, datetime]]
) -> dict[str, Any]:
    prompts = _prompts(line)
    return {
        "shortest": prompts.first, "longest": prompts.last, "in_buckets": prompts != EVERY_PROMPT,
        "source": [item[0] for item in ranges], "lo": [item[1] for item in ranges], "hi": [item[2] for item in ranges],
        "consumer": line.key.consumer, "model": line.key.sku, "first": scope.epochs.first,
        "before": scope.epochs.before, "zone": scope.zone,
    }  # fmt: skip


def _owned_ranges(line: StatementLine, scope: Scope) -> list[tuple[str, datetime, datetime]]:
    """(source, from, until) in which the line's team paid for the consumer: two gateways may know one name."""
    book = scope.reference_data.consumers
    rows = _rows("SELECT DISTINCT source FROM token_dimension WHERE consumer = %(c)s", {"c": line.key.consumer})
    ranges = []
    for cut in (cut for piece in scope.pieces for cut in piece.cut(book.changes())):
        for row in rows:
            owner = book.owner(row["source"], line.key.consumer, cut.start)
            if owner is not None and owner.team == line.key.team:
                ranges.append((row["source"], cut.start, cut.end))
    return ranges


def share_out(
    line: StatementLine, rows: Sequence[dict[str, Any]], of: Part | None = None, *, kept: bool = False
) -> Breakdown:
    """Give each row its share of the line (or of a part of it) by largest remainder, so that shares add up.

    kept: the line is of an assessment some minutes old, whose quantity is shared out whatever was used since.
    """
    quantity, amount = (of.quantity, of.amount) if of else (line.quantity, line.amount)
    weights = [row["usage"] for row in rows]
    if not sum(weights):
        return Breakdown([], quantity, amount)
    exact = _quantity(line, sum(weights)) if of is None and not kept else quantity
    quantities, amounts = split_amount(exact, weights, QUANTITY_PLACES), split_amount(amount, weights)
    parts = [
        Part({name: value for name, value in row.items() if name != "usage"}, row["usage"], *shares)
        for row, *shares in zip(rows, quantities, amounts, strict=True)
    ]
    return Breakdown(parts, exact, amount)


def _quantity(line: StatementLine, usage: Decimal) -> Decimal:
    """Usage that a commitment pays for in part stands on two lines: each is shared out by all of it."""
    whole = round_to(Fraction(usage) / DIVISOR[line.key.unit], QUANTITY_PLACES)
    return min(whole, line.quantity) if line.key.kind in ("gpu", COMMITMENT) else whole


def _within(scope: Scope, inside: Interval) -> Scope:
    pieces = [cut for piece in scope.pieces if (cut := piece.overlap(inside))]
    return replace(scope, pieces=pieces)


def _by_day(scope: Scope) -> Scope:
    midnights = _midnights(scope)
    pieces = [cut for piece in scope.pieces for cut in piece.cut(midnights)]
    return replace(scope, pieces=pieces)


def _midnights(scope: Scope) -> list[datetime]:
    found, at = [], scope.window.start
    while at < scope.window.end:
        found.append(at)
        at = _next_midnight(at, scope.zone)
    return found


def _next_midnight(instant: datetime, zone: str) -> datetime:
    """The local midnight after `instant`: a local day may have 23 or 25 hours."""
    day = instant.astimezone(ZoneInfo(zone)).date() + DAY
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))


def _rows(statement: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
