"""Reading: the usage of every line of a close by hour and job, found as `billing.rating.assessment` found it.

The pieces of time, the epochs, the owner, the price and the verdict are the ones that rating used, so the hours of a
line add up to the usage that the line charges; `billing.invoicing.services.focus` compares both.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from billing.invoicing.focus.held import HeldLines
from billing.invoicing.focus.shares import HOUR, Evidence, Place
from billing.invoicing.models import BillingPeriod
from billing.rates.selectors import PolicyBook, allocation_policy_at
from billing.rating.assessment import Assessment, assess_slice
from billing.rating.books import Books
from billing.rating.commitments import Slice
from billing.rating.efficiency import Verdict
from billing.rating.interruptions import interrupted_of
from billing.rating.models import EfficiencyVerdict
from billing.rating.selectors import books_with, changes_known, changes_through, last_change
from billing.usage.interruptions import carried_times
from billing.usage.selectors import JOB, EpochFilter, late_epochs, late_windows
from billing.usage.token_sums import BUCKETED, Bounds, bucketed
from metering.intervals import Interval, month_of
from pricing.allocation import ALLOCATED
from pricing.contexts import contexts_of, priced_class
from pricing.money import EXACT
from pricing.rate_card import MILLION_TOKENS, RateCard
from pricing.rating import LineKey, gpu_key, measured

FETCHED = 20_000
CLASS_SUMS = {
    "input": "input_tokens - cache_read_input_tokens - cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_creation": "cache_creation_input_tokens",
    "output": "output_tokens",
}


@dataclass
class HourlyUsage:
    """Base units of each line by place, and the evidence of adjusted lines by job; of all lines, or `only` of some.

    `list_prices`: what lines under a commitment would have cost per unit without it. `faults` says why teams cannot be
    rated: lines that hang on what was rated are without their usage, or without that of others where these hang on theirs.
    """

    only: Set[LineKey] | None = None
    places: dict[LineKey, dict[Place, Decimal]] = field(default_factory=lambda: defaultdict(dict))
    evidence: dict[LineKey, dict[str, Evidence]] = field(default_factory=lambda: defaultdict(dict))
    list_prices: dict[LineKey, Decimal] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, key: LineKey, place: Place, usage: Decimal) -> None:
        """Count `usage` at a place; nothing used leaves no trace."""
        if usage and (self.only is None or key in self.only):
            places = self.places[key]
            places[place] = EXACT.add(places.get(place, Decimal(0)), usage)


def hourly_usage(
    period: BillingPeriod, *, only: Set[LineKey] | None = None, known: int | None = None
) -> HourlyUsage:
    """The usage that the close of `period` charged: its own, and what came late for windows closed before it.

    Priced and owned as that close knew it, or as the changes of closed time through the `known`-th say.
    """
    this = period.ordinal or 0
    found = HourlyUsage(only)
    changes = changes_known(this)
    late_change = known is not None and known != last_change(changes)
    books = books_with(changes_through(known or 0) if late_change else changes)
    own = Interval(period.start, period.end)
    verdicts = _verdicts_under(found, books, own, period) if late_change else _verdicts(this)
    found_in = _Books(books, verdicts)
    _read_window(found, found_in, own, EpochFilter(before=this), month_of(own.start, period.zone), correction=False)
    _read_allocated(found, books, own, period)
    for late in late_windows(this):
        window = Interval(late.start, late.end)
        epochs = late_epochs(this)
        _read_window(found, found_in, window, epochs, month_of(window.start, period.zone), correction=True)
    return found


def windows_closed_before(ordinal: int) -> list[Interval]:
    """The billing months whose usage may be corrected by the `ordinal`-th close."""
    rows = BillingPeriod.objects.filter(ordinal__lt=ordinal).order_by("ordinal")
    return [Interval(row.start, row.end) for row in rows]


def _read_allocated(found: HourlyUsage, books: Books, window: Interval, period: BillingPeriod) -> None:
    """Parts of idle time and shared cost have the month as their only place."""
    if allocation_policy_at(window.start) is None:
        return
    assessed = _assessed(found, books, window, period)
    for charge in assessed.charges:
        if charge.key.kind in ALLOCATED:
            found.add(charge.key, Place(window.start, "", "", window.end), charge.usage_quantity)


@dataclass(frozen=True)
class _Books:
    books: Books
    verdicts: Mapping[tuple[str, ...], EfficiencyVerdict | Verdict]

    @property
    def card(self) -> RateCard:
        return self.books.card

    @property
    def policies(self) -> PolicyBook:
        return self.books.policies


def _verdicts(ordinal: int) -> dict[tuple[str, ...], EfficiencyVerdict]:
    rows = EfficiencyVerdict.objects.filter(closing=ordinal, shadow=False).exclude(multiplier=1)
    return {(row.team, row.cluster, row.namespace, row.job, row.policy): row for row in rows}


def _assessed(found: HourlyUsage, books: Books, window: Interval, period: BillingPeriod) -> Assessment:
    assessed = assess_slice(
        window=window, zone=period.zone, books=books, closing=period.ordinal or 0, correction=False, isolate=True
    )
    found.faults |= assessed.faults
    return assessed


def _verdicts_under(
    found: HourlyUsage, books: Books, window: Interval, period: BillingPeriod
) -> dict[tuple[str, ...], Verdict]:
    """What the policies say of the jobs of a closed window under other owners or prices than its close knew."""
    assessed = _assessed(found, books, window, period)
    judged = [verdict for verdict in assessed.verdicts if not verdict.shadow and verdict.multiplier != 1]
    return {(item.team, item.cluster, item.namespace, item.job, item.policy): item for item in judged}


def _read_window(
    found: HourlyUsage, books: _Books, window: Interval, epochs: EpochFilter, month: str, *, correction: bool
) -> None:
    _read_devices(found, books, window, epochs, month, correction=correction)
    _read_tokens(found, books, window, epochs, month, correction)


def _read_devices(
    found: HourlyUsage, books: _Books, window: Interval, epochs: EpochFilter, month: str, *, correction: bool
) -> None:
    part = Slice(window, window.cut(books.books.device_changes()), month, epochs, correction)
    policies = [books.policies.at(piece.start) for piece in part.pieces]
    lines = HeldLines(books.books, part)
    for index, hour, cluster, namespace, accelerator, resource, job, site, device_us, unit_us in _held(part.pieces, epochs):
        line = lines.line(index, cluster, namespace, accelerator, resource)
        if line is None:
            continue
        place, quantity = Place(hour, job, site), unit_us if line.by_unit else device_us
        if line.committed:
            line.places[place] = EXACT.add(line.places.get(place, Decimal(0)), quantity)
        else:
            found.add(line.key, place, quantity)
        policy = policies[index]
        if policy is not None and not correction:
            _add_adjustment(found, books, line.key, policy.name, place, quantity)
    for item in lines.parted(found.faults):
        found.add(item.key, item.place, item.quantity)
        if item.list_price is not None:
            found.list_prices[item.key] = item.list_price
    _read_carried(found, books, part.pieces, epochs, month, correction)


def _read_carried(
    found: HourlyUsage, books: _Books, pieces: Sequence[Interval], epochs: EpochFilter, month: str, correction: bool
) -> None:
    owners = books.books.namespaces
    for item in carried_times(pieces, epochs, books.books.carried):
        interrupted = interrupted_of(item, pieces, owners, month, correction)
        if interrupted is None:
            continue
        usage = interrupted.usage
        version, price = books.card.gpu_price(usage.accelerator, usage.resource, usage.at)
        key = gpu_key(usage, version.name, price)
        carried = key.changed(kind="interruption", policy=interrupted.policy, reason=interrupted.reason)
        found.add(carried, Place(item.hour, item.job, item.site), measured(usage, price))


def _add_adjustment(
    found: HourlyUsage, books: _Books, key: LineKey, policy: str, place: Place, quantity: Decimal
) -> None:
    verdict = books.verdicts.get((key.team, key.cluster, key.namespace, place.resource, policy))
    if verdict is None:
        return
    adjusted = key.changed(kind="efficiency", policy=policy, reason=verdict.reason)
    found.add(adjusted, place, quantity)
    found.evidence[adjusted][place.resource] = Evidence(verdict.mfu, verdict.hfu, verdict.coverage)


def _held(pieces: Sequence[Interval], epochs: EpochFilter) -> Iterator[tuple[Any, ...]]:
    """Devices held per piece, UTC hour, namespace, SKU, job and site, in device- and unit-microseconds."""
    inside = "microseconds(least(s.until, p.hi, h.hour + interval '1 hour') - greatest(s.start, p.lo, h.hour))"
    yield from _rows(
        f"""SELECT (p.i - 1)::int, h.hour, a.cluster, a.namespace, a.accelerator, a.resource, {JOB}, a.site,
                   sum(a.quantity * a.device_fraction * {inside}), sum(a.quantity::numeric * {inside})
            FROM unnest(%(lo)s::timestamptz[], %(hi)s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
            JOIN usage_allocationspan s ON s.start < p.hi AND s.until > p.lo
            JOIN usage_gpuallocation a ON a.id = s.allocation_id
            CROSS JOIN LATERAL generate_series(
                date_trunc('hour', greatest(s.start, p.lo), 'UTC'),
                least(s.until, p.hi) - interval '1 microsecond', interval '1 hour') AS h (hour)
            WHERE s.epoch >= %(first)s AND s.epoch < %(before)s
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8""",  # noqa: S608 - made of this module's own words
        {
            "lo": [piece.start for piece in pieces], "hi": [piece.end for piece in pieces],
            "first": epochs.first, "before": epochs.before,
        },
    )  # fmt: skip


def _read_tokens(
    found: HourlyUsage, books: _Books, window: Interval, epochs: EpochFilter, month: str, correction: bool
) -> None:
    owners = books.books.consumers
    pieces = window.cut(books.card.changes() | owners.changes())
    bounds = [books.card.context_bounds(piece.start) for piece in pieces]
    for index, hour, source, consumer, model, site, bucket, *counts in _counted(pieces, epochs, bounds):
        at = pieces[index].start
        context = "" if bucket is None else str(contexts_of(bounds[index][model])[bucket])
        owner = owners.owner(source, consumer, at)
        if owner is None:
            continue
        for token_class, count in zip(CLASS_SUMS, counts, strict=True):
            if not count:
                continue
            priced = priced_class(token_class, context)
            version, _ = books.card.token_price(model, priced, at)
            key = LineKey(
                team=owner.team, platform=False, correction=correction, charge_period=month, kind="tokens",
                consumer=consumer, sku=model, token_class=priced, unit=MILLION_TOKENS, price_version=version.name,
            )  # fmt: skip
            found.add(key, Place(hour, f"{source}/{model}", site), Decimal(count))


def _counted(
    pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds]
) -> Iterator[tuple[Any, ...]]:
    """Tokens by class per piece, UTC hour, source, consumer, model, site and bucket of prompt lengths.

    Cut hours, and models that have buckets, are read from the events; the bucket is None for all other models.
    """
    ranges = [(index, *bounds) for index, piece in enumerate(pieces) for bounds in _whole_and_cut_hours(piece)]
    parts = (_counts("token_usage_hour", "hour", "w", ranges, True), _counts("token_event", "time", "c", ranges, False))
    sums = ", ".join(f"sum({expression})::bigint" for expression in CLASS_SUMS.values())
    parameters: dict[str, Any] = {"first": epochs.first, "before": epochs.before, **bucketed(bounds)}
    for _, named in parts:
        parameters |= named
    columns = "u.i, u.hour, d.source, d.consumer, d.model, coalesce(d.site, '')"
    yield from _rows(
        f"""SELECT {columns}, NULL, {sums}
            FROM ({" UNION ALL ".join(statement for statement, _ in parts)}) u
            JOIN token_dimension d ON d.id = u.dimension
            WHERE NOT EXISTS (SELECT 1 FROM {BUCKETED} AS c (i, model, firsts) WHERE c.i = u.i AND c.model = d.model)
            GROUP BY 1, 2, 3, 4, 5, 6""",  # noqa: S608 - as above
        parameters,
    )
    if any(bounds):
        statement, named = _counts(
            "token_event", "time", "b", [(i, piece.start, piece.end, False) for i, piece in enumerate(pieces)], False
        )
        yield from _rows(
            f"""SELECT {columns}, width_bucket(u.input_tokens, string_to_array(c.firsts, ',')::bigint[]), {sums}
                FROM ({statement}) u JOIN token_dimension d ON d.id = u.dimension
                JOIN {BUCKETED} AS c (i, model, firsts) ON c.i = u.i AND c.model = d.model
                GROUP BY 1, 2, 3, 4, 5, 6, 7""",  # noqa: S608 - as above
            parameters | named,
        )


def _counts(
    table: str, instant: str, prefix: str, ranges: Sequence[tuple[int, datetime, datetime, bool]], whole: bool
) -> tuple[str, dict[str, Any]]:
    ours = [item for item in ranges if item[3] == whole]
    statement = f"""SELECT r.i, date_trunc('hour', t.{instant}, 'UTC') AS hour, t.dimension, t.input_tokens,
            t.cache_read_input_tokens, t.cache_creation_input_tokens, t.output_tokens
        FROM unnest(%({prefix}_i)s::int[], %({prefix}_lo)s::timestamptz[], %({prefix}_hi)s::timestamptz[]) AS r (i, lo, hi)
        JOIN {table} t ON t.{instant} >= r.lo AND t.{instant} < r.hi
        WHERE t.epoch >= %(first)s AND t.epoch < %(before)s"""  # noqa: S608 - made of this module's own words
    names = (f"{prefix}_i", f"{prefix}_lo", f"{prefix}_hi")
    return statement, {name: [item[column] for item in ours] for column, name in enumerate(names)}


def _whole_and_cut_hours(piece: Interval) -> list[tuple[datetime, datetime, bool]]:
    """(from, until, whole hours?) of a piece: the roll-up knows whole UTC hours only."""
    last = piece.end.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    floor = piece.start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    first = floor if floor == piece.start else floor + HOUR
    if first > last:
        return [(piece.start, piece.end, False)]
    parts = [(piece.start, first, False), (first, last, True), (last, piece.end, False)]
    return [part for part in parts if part[0] < part[1]]


def _rows(statement: str, parameters: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        while rows := cursor.fetchmany(FETCHED):
            yield from rows
