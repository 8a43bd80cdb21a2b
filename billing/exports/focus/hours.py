"""Reading: the usage of every line of a close by hour and job, found as `billing.rating.assessment` found it.

The pieces of time, the epochs, the owner, the price and the verdict are the ones that rating used, so the hours of a
line add up to the usage that the line charges; `billing.exports.services.focus` compares both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from django.db import connection

from billing.exports.focus.gpu_lines import HeldLines
from billing.exports.focus.readings import NamesByTeam, Reading
from billing.exports.focus.shares import HOUR, Evidence, Place
from billing.invoices.models import BillingPeriod
from billing.rates.selectors import PolicyBook, allocation_policy_at
from billing.rating.assessment import RatingResult, rate_slice
from billing.rating.commitments import Slice
from billing.rating.efficiency import Verdict
from billing.rating.interruptions import interrupted_of
from billing.rating.models import EfficiencyVerdict
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import changes_known, changes_through, last_change, reference_data_with
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
HOURS_KEPT = 10_000
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
            count_at(self.places[key], place, usage)


def count_at(places: dict[Place, Decimal], place: Place, usage: Decimal) -> None:
    """Count `usage` at a place of a line."""
    before = places.get(place)
    places[place] = usage if before is None else EXACT.add(before, usage)


class UsageOfClose:
    """The usage that the close of `period` charged: its own, and what came late for windows closed before it.

    Priced and owned as that close knew it, or as the changes of closed time through the `known`-th say. A large month has
    more hours than memory holds, so they are read for some teams at a time; what the hours hang on is found once.
    """

    def __init__(self, period: BillingPeriod, *, known: int | None = None) -> None:
        this, own = period.ordinal or 0, Interval(period.start, period.end)
        changes = changes_known(this)
        late_change = known is not None and known != last_change(changes)
        reference_data = reference_data_with(changes_through(known or 0) if late_change else changes)
        assessed = None
        if late_change or allocation_policy_at(own.start) is not None:
            assessed = rate_slice(
                window=own, zone=period.zone, reference_data=reference_data, closing=this, correction=False, isolate=True
            )
        self._faults = dict(assessed.faults) if assessed else {}
        self._allocated = _allocated(assessed) if assessed else {}
        self._own = own
        self._books = _Books(reference_data, _judged(assessed) if late_change and assessed else _verdicts(this))
        self._names = NamesByTeam(reference_data)
        self._parts = [_part(reference_data, own, EpochFilter(before=this), period.zone, correction=False)]
        for late in late_windows(this):
            window = Interval(late.start, late.end)
            self._parts.append(_part(reference_data, window, late_epochs(this), period.zone, correction=True))

    def of(self, teams: Set[str], only: Set[LineKey] | None = None) -> HourlyUsage:
        """The hours of these teams: of all of their lines, or `only` of some."""
        found = HourlyUsage(only, faults=dict(self._faults))
        reading = Reading(teams, self._names.namespaces(teams), self._names.dimensions(teams))
        for part in self._parts:
            _read_devices(found, self._books, part, reading)
            _read_tokens(found, self._books, part, reading)
        for team in teams:
            for key, usage in self._allocated.get(team, ()):
                found.add(key, Place(self._own.start, "", "", self._own.end), usage)
        return found


def windows_closed_before(ordinal: int) -> list[Interval]:
    """The billing months whose usage may be corrected by the `ordinal`-th close."""
    rows = BillingPeriod.objects.filter(ordinal__lt=ordinal).order_by("ordinal")
    return [Interval(row.start, row.end) for row in rows]


def _part(reference_data: ReferenceData, window: Interval, epochs: EpochFilter, zone: str, *, correction: bool) -> Slice:
    return Slice(window, window.cut(reference_data.device_changes()), month_of(window.start, zone), epochs, correction)


def _allocated(assessed: RatingResult) -> dict[str, list[tuple[LineKey, Decimal]]]:
    """Parts of idle time and shared cost by team; they have the month as their only place."""
    found: dict[str, list[tuple[LineKey, Decimal]]] = defaultdict(list)
    for charge in assessed.charges:
        if charge.key.kind in ALLOCATED:
            found[charge.key.team].append((charge.key, charge.usage_quantity))
    return found


@dataclass(frozen=True)
class _Books:
    reference_data: ReferenceData
    verdicts: Mapping[tuple[str, ...], EfficiencyVerdict | Verdict]

    @property
    def card(self) -> RateCard:
        return self.reference_data.card

    @property
    def policies(self) -> PolicyBook:
        return self.reference_data.policies


def _verdicts(ordinal: int) -> dict[tuple[str, ...], EfficiencyVerdict]:
    rows = EfficiencyVerdict.objects.filter(closing=ordinal, shadow=False).exclude(multiplier=1)
    return {(row.team, row.cluster, row.namespace, row.job, row.policy): row for row in rows}


def _judged(assessed: RatingResult) -> dict[tuple[str, ...], Verdict]:
    """What the policies say of the jobs of a closed window under other owners or prices than its close knew."""
    judged = [verdict for verdict in assessed.verdicts if not verdict.shadow and verdict.multiplier != 1]
    return {(item.team, item.cluster, item.namespace, item.job, item.policy): item for item in judged}


def _read_devices(found: HourlyUsage, reference_data: _Books, part: Slice, reading: Reading) -> None:
    policies = [reference_data.policies.at(piece.start) for piece in part.pieces]
    lines = HeldLines(reference_data.reference_data, part, reading)
    for index, hour, cluster, namespace, accelerator, resource, job, site, device_us, unit_us in _held(part, reading):
        line = lines.line(index, cluster, namespace, accelerator, resource)
        if line is None:
            continue
        place, quantity = Place(hour_of(hour), job, site), unit_us if line.by_unit else device_us
        if line.committed:
            line.places[place] = EXACT.add(line.places.get(place, Decimal(0)), quantity)
        else:
            found.add(line.key, place, quantity)
        policy = policies[index]
        if policy is not None and not part.correction:
            _add_adjustment(found, reference_data, line.key, policy.name, place, quantity)
    for item in lines.parted(found.faults):
        found.add(item.key, item.place, item.quantity)
        if item.list_price is not None:
            found.list_prices[item.key] = item.list_price
    _read_carried(found, reference_data, part, reading)


def _read_carried(found: HourlyUsage, reference_data: _Books, part: Slice, reading: Reading) -> None:
    owners = reference_data.reference_data.namespaces
    for item in carried_times(
        part.pieces, part.epochs, reference_data.reference_data.carried, namespaces=reading.namespaces
    ):
        interrupted = interrupted_of(item, part.pieces, owners, part.month, part.correction)
        if interrupted is None or interrupted.usage.team not in reading.teams:
            continue
        usage = interrupted.usage
        version, price = reference_data.card.gpu_price(usage.accelerator, usage.resource, usage.at)
        key = gpu_key(usage, version.name, price)
        carried = key.changed(kind="interruption", policy=interrupted.policy, reason=interrupted.reason)
        found.add(carried, Place(item.hour, item.job, item.site), measured(usage, price))


def _add_adjustment(
    found: HourlyUsage, reference_data: _Books, key: LineKey, policy: str, place: Place, quantity: Decimal
) -> None:
    verdict = reference_data.verdicts.get((key.team, key.cluster, key.namespace, place.resource, policy))
    if verdict is None:
        return
    adjusted = key.changed(kind="efficiency", policy=policy, reason=verdict.reason)
    found.add(adjusted, place, quantity)
    found.evidence[adjusted][place.resource] = Evidence(verdict.mfu, verdict.hfu, verdict.coverage)


@lru_cache(maxsize=HOURS_KEPT)
def hour_of(seconds: int) -> datetime:
    """The hour that begins so many seconds after 1970: rows come by the million, hours by the hundred."""
    return datetime.fromtimestamp(seconds, UTC)


def _held(part: Slice, reading: Reading) -> Iterator[tuple[Any, ...]]:
    """Devices held per piece, UTC hour (in seconds), namespace, SKU, job and site, in device- and unit-microseconds."""
    inside = "microseconds(least(s.until, p.hi, h.hour + interval '1 hour') - greatest(s.start, p.lo, h.hour))"
    yield from _rows(
        f"""SELECT (p.i - 1)::int, extract(epoch FROM h.hour)::bigint, a.cluster, a.namespace, a.accelerator, a.resource,
                   {JOB}, a.site, sum(a.quantity * a.device_fraction * {inside}), sum(a.quantity::numeric * {inside})
            FROM unnest(%(lo)s::timestamptz[], %(hi)s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
            JOIN usage_allocationrevision s ON s.start < p.hi AND s.until > p.lo
            JOIN usage_gpuallocation a ON a.id = s.allocation_id
            CROSS JOIN LATERAL generate_series(
                date_trunc('hour', greatest(s.start, p.lo), 'UTC'),
                least(s.until, p.hi) - interval '1 microsecond', interval '1 hour') AS h (hour)
            WHERE s.epoch >= %(first)s AND s.epoch < %(before)s AND (a.cluster, a.namespace) IN (
                SELECT * FROM unnest(%(clusters)s::text[], %(namespaces)s::text[]))
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8""",  # noqa: S608 - made of this module's own words
        {
            "lo": [piece.start for piece in part.pieces], "hi": [piece.end for piece in part.pieces],
            "first": part.epochs.first, "before": part.epochs.before,
            "clusters": [cluster for cluster, _ in reading.namespaces],
            "namespaces": [namespace for _, namespace in reading.namespaces],
        },
    )  # fmt: skip


def _read_tokens(found: HourlyUsage, reference_data: _Books, part: Slice, reading: Reading) -> None:
    pieces = part.window.cut(reference_data.card.changes() | reference_data.reference_data.consumers.changes())
    bounds = [reference_data.card.context_bounds(piece.start) for piece in pieces]
    lines = _TokenLines(found, reference_data, part, reading.teams, pieces, bounds)
    for index, hour, source, consumer, model, site, bucket, *counts in _counted(pieces, part.epochs, bounds, reading):
        of_classes = lines.of(index, source, consumer, model, bucket)
        if of_classes is None:
            continue
        place = Place(hour_of(hour), of_classes.resource, site)
        for token_class, count in zip(CLASS_SUMS, counts, strict=True):
            if count:
                places = of_classes.places(token_class)
                if places is not None:
                    count_at(places, place, Decimal(count))


class _TokenLines:
    """The lines of the tokens of some teams in one window, found once for all of their hours."""

    def __init__(
        self, found: HourlyUsage, reference_data: _Books, part: Slice, teams: Set[str], pieces: Sequence[Interval],
        bounds: Sequence[Bounds],
    ) -> None:  # fmt: skip
        self._found, self._books, self._part, self._teams = found, reference_data, part, teams
        self._pieces, self._bounds = pieces, bounds
        self._lines: dict[tuple[int, str, str, str, int | None], _OfClasses | None] = {}

    def of(self, index: int, source: str, consumer: str, model: str, bucket: int | None) -> "_OfClasses | None":
        """The lines of the classes of tokens in the `index`-th piece; None where none of the teams pays."""
        name = (index, source, consumer, model, bucket)
        if name not in self._lines:
            self._lines[name] = self._of(*name)
        return self._lines[name]

    def _of(self, index: int, source: str, consumer: str, model: str, bucket: int | None) -> "_OfClasses | None":
        at = self._pieces[index].start
        owner = self._books.reference_data.consumers.owner(source, consumer, at)
        if owner is None or owner.team not in self._teams:
            return None
        context = "" if bucket is None else str(contexts_of(self._bounds[index][model])[bucket])
        facts = LineKey(
            team=owner.team, platform=False, correction=self._part.correction, charge_period=self._part.month,
            kind="tokens", consumer=consumer, sku=model, unit=MILLION_TOKENS,
        )  # fmt: skip
        return _OfClasses(self._found, f"{source}/{model}", partial(_of_class, facts, self._books.card, context, at))


def _of_class(facts: LineKey, card: RateCard, context: str, at: datetime, token_class: str) -> LineKey:
    priced = priced_class(token_class, context)
    version, _ = card.token_price(facts.sku, priced, at)
    return facts.changed(token_class=priced, price_version=version.name)


class _OfClasses:
    """The places of the lines of one consumer and model, by class; a class that nobody used needs no price."""

    def __init__(self, found: HourlyUsage, resource: str, key: Callable[[str], LineKey]) -> None:
        self.resource = resource
        self._found, self._key = found, key
        self._places: dict[str, dict[Place, Decimal] | None] = {}

    def places(self, token_class: str) -> dict[Place, Decimal] | None:
        """Where the tokens of a class are counted; None where nobody asks for the line."""
        if token_class not in self._places:
            key = self._key(token_class)
            wanted = self._found.only is None or key in self._found.only
            self._places[token_class] = self._found.places[key] if wanted else None
        return self._places[token_class]


def _counted(
    pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds], reading: Reading
) -> Iterator[tuple[Any, ...]]:
    """Tokens by class per piece, UTC hour (in seconds), source, consumer, model, site and bucket of prompt lengths.

    Cut hours, and models that have buckets, are read from the events; the bucket is None for all other models.
    """
    ranges = [(index, *bounds) for index, piece in enumerate(pieces) for bounds in _whole_and_cut_hours(piece)]
    parts = (_counts("token_usage_hour", "hour", "w", ranges, True), _counts("token_event", "time", "c", ranges, False))
    sums = ", ".join(f"sum({expression})::bigint" for expression in CLASS_SUMS.values())
    parameters: dict[str, Any] = {
        "first": epochs.first, "before": epochs.before, "dimensions": reading.dimensions, **bucketed(bounds),
    }  # fmt: skip
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
    statement = f"""SELECT r.i, extract(epoch FROM date_trunc('hour', t.{instant}, 'UTC'))::bigint AS hour, t.dimension,
            t.input_tokens, t.cache_read_input_tokens, t.cache_creation_input_tokens, t.output_tokens
        FROM unnest(%({prefix}_i)s::int[], %({prefix}_lo)s::timestamptz[], %({prefix}_hi)s::timestamptz[]) AS r (i, lo, hi)
        JOIN {table} t ON t.{instant} >= r.lo AND t.{instant} < r.hi
        WHERE t.epoch >= %(first)s AND t.epoch < %(before)s AND t.dimension = ANY(%(dimensions)s::int[])"""  # noqa: S608 - made of this module's own words
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
