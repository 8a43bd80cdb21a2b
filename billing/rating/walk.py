"""The only path from usage to price: sums of usage -> cut where reference data change -> owner -> line and price.

`ReferenceData.device_pieces` and `token_pieces` cut usage wherever an owner, price, policy, commitment or carbon factor
changes. `device_usage`, `carried_usage` and `token_usage` assign owners to the sums. `rated_usage` assigns each to a line of
a close, at any grain: its parts add up to the usage of the lines, and callers that show parts of a line share the line's
amount out by them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import structs

from billing.rating.grains import Grain, Place
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.reference_data import ReferenceData
from billing.rating.rules import rules_of
from billing.rating.team_isolation import TeamRatingError, rated_by_team
from billing.usage.models import Close
from billing.usage.queries import Detail, GpuTime, Namespaces, carried_time, gpu_time
from billing.usage.scope import EpochFilter
from billing.usage.selectors import JobName
from billing.usage.store.sums import TokenSums, token_sums
from metering.intervals import Interval
from pricing.commitments import KIND as COMMITMENT
from pricing.commitments import CommitmentBook, Cover, UsageId, cover, unused_charge, usage_id, used_line
from pricing.money import EXACT
from pricing.rate_card import SLICE_HOURS, UnpricedError
from pricing.rating import GpuUsage, InterruptedUsage, LineKey, TokenSum, gpu_line, token_line

NOTHING: Final = Decimal(0)
DETAILS: Final[Mapping[Grain, frozenset[Detail]]] = {
    Grain.LINE: frozenset(), Grain.DAY: frozenset(), Grain.HOUR: frozenset({"hour", "job", "site"}),
    Grain.JOB: frozenset({"job", "queue"}), Grain.POD: frozenset({"job", "allocation"}),
    Grain.WORKLOAD_DAY: frozenset({"job", "queue", "site", "pool", "tier"}),
}  # fmt: skip
IN_ORDER: Final[frozenset[Detail]] = frozenset({"hour", "job", "site"})
"""Details by which commitments are used up in order: time, and within an hour the names of jobs and sites."""


class VerdictLike(Protocol):
    """The verdict of an efficiency policy on a job, stored or not."""

    @property
    def team(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def multiplier(self) -> Decimal: ...
    @property
    def shadow(self) -> bool: ...


AnyVerdict = TypeVar("AnyVerdict", bound=VerdictLike)
Verdicts = Mapping[tuple[str, str, str, str, str], VerdictLike]
"""Verdicts that change an amount, by team, cluster, namespace, job and policy."""
UNJUDGED: Final[Verdicts] = {}
Order = tuple[object, ...]
"""Sort key of a part of a line in the order in which commitments are used up."""
Used = tuple[LineKey, Decimal, Decimal]
"""Line, price and quantity that a commitment pays for of a piece of usage."""


def adjusting(verdicts: Iterable[AnyVerdict]) -> Mapping[tuple[str, str, str, str, str], AnyVerdict]:
    """Return the verdicts that change an amount, by team, cluster, namespace, job and policy."""
    return {
        (one.team, one.cluster, one.namespace, one.job, one.policy): one
        for one in verdicts
        if not one.shadow and one.multiplier != 1
    }


class RatedUsage(msgspec.Struct, frozen=True, gc=False):
    """Usage of one line at one place, in base units. `list_price`: price without the commitment that pays for the usage.

    `first`, `last`: time of an allocation. `requests`: number of requests behind tokens, of whatever class.
    `requests_once`: the same on only one of the classes of a request, so that they can be added up.
    """

    key: LineKey
    price: Decimal
    quantity: Decimal
    place: Place
    list_price: Decimal | None = None
    first: datetime | None = None
    last: datetime | None = None
    requests: int = 0
    requests_once: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Usage of a month that one close bills: its own, or (`correction`) what came late.

    `ahead`: expected usage of devices in addition to reported usage; only the grain of lines includes it.
    `gathered`: teams whose token lines do not distinguish consumers.
    """

    window: Interval
    month: str
    epochs: EpochFilter
    correction: bool
    devices: Sequence[Interval]
    tokens: Sequence[Interval]
    ahead: Sequence[GpuUsage] = ()
    gathered: Collection[str] = ()

    @classmethod
    def of(
        cls, reference_data: ReferenceData, window: Interval, month: str, epochs: EpochFilter, *, correction: bool = False,
        until: datetime | None = None, gathered: Collection[str] = (),
    ) -> "Slice":  # fmt: skip
        """Return the slice of the window, cut where reference data change, with only the usage before `until`."""
        devices, tokens = reference_data.device_pieces(window), reference_data.token_pieces(window)
        if until is not None:
            days = Interval(window.start, until)
            devices, tokens = ([part for piece in cut if (part := piece.overlap(days))] for cut in (devices, tokens))
        return cls(window, month, epochs, correction, devices, tokens, gathered=gathered)


def device_usage(
    part: Slice, reference_data: ReferenceData, by: Collection[Detail] = (), *, namespaces: Namespaces | None = None,
    jobs: Collection[JobName] | None = None, cuts: Collection[datetime] = (),
) -> Iterator[tuple[GpuUsage, GpuTime]]:  # fmt: skip
    """Yield usage of devices with its owner; the team is empty if nobody owns it.

    `cuts`: further cuts within the pieces; the `piece` of a row is then the number of a stretch between cuts.
    """
    cut = stretches(part.devices, cuts)
    for row in gpu_time([time for time, _ in cut], part.epochs, by, namespaces=namespaces, jobs=jobs):
        yield _owned(part, reference_data, row, cut[row.piece][1]), row
    for usage in part.ahead:
        place = usage.cluster, usage.namespace, usage.accelerator, usage.resource
        yield usage, GpuTime(0, *place, usage.device_us, usage.unit_us)


def carried_usage(
    part: Slice, reference_data: ReferenceData, by: Collection[Detail] = (), *, namespaces: Namespaces | None = None,
    cuts: Collection[datetime] = (),
) -> Iterator[tuple[InterruptedUsage, GpuTime]]:  # fmt: skip
    """Yield usage of teams that the platform waives because of how an allocation ended.

    The price line stays whole: the waived amount is a line of its own, so that the team sees what it would have paid. The
    account of capacity counts that time as the platform's.
    """
    cut = stretches(part.devices, cuts)
    times = [time for time, _ in cut]
    for row in carried_time(times, part.epochs, reference_data.carried, by, namespaces=namespaces):
        usage = _owned(part, reference_data, row, cut[row.piece][1])
        if usage.team and not usage.platform:
            yield InterruptedUsage(usage, row.policy, row.reason), row


def token_usage(
    part: Slice, reference_data: ReferenceData, *, hourly: bool = False, dimensions: Collection[int] | None = None,
    cuts: Collection[datetime] = (), priced: bool = True,
) -> Iterator[tuple[TokenSum, TokenSums]]:  # fmt: skip
    """Yield usage of tokens by priced class with its owner; the team is empty if unowned. `cuts`: as in `device_usage`.

    If not `priced`, buckets of prompt lengths are not distinguished: then the roll-ups suffice.
    """
    cut, consumers = stretches(part.tokens, cuts), reference_data.consumers
    bounds = [reference_data.card.context_bounds(at) if priced else {} for _, at in cut]
    times = [time for time, _ in cut]
    for row in token_sums(times, part.epochs, bounds, hourly=hourly, dimensions=dimensions):
        at = cut[row.piece][1]
        owner = consumers.owner(row.source, row.consumer, at)
        team = owner.team if owner else ""
        consumer = "" if team in part.gathered else row.consumer
        yield TokenSum(team, consumer, row.model, at, row.by_class, part.month, part.correction), row


def token_ranges(
    part: Slice, reference_data: ReferenceData, key: LineKey, sources: Collection[str]
) -> list[tuple[str, Interval]]:
    """Return the sources and times from which tokens of the line's consumer and model are on that line."""
    found = []
    for source, piece in ((source, piece) for piece in part.tokens for source in sorted(sources)):
        owner = reference_data.consumers.owner(source, key.consumer, piece.start)
        usage = TokenSum(owner.team if owner else "", key.consumer, key.sku, piece.start, {}, part.month, part.correction)
        try:
            line, _ = token_line(usage, key.token_class, reference_data.card)
        except UnpricedError:
            continue
        if line == key:
            found.append((source, piece))
    return found


def stretches(pieces: Iterable[Interval], cuts: Collection[datetime]) -> list[tuple[Interval, datetime]]:
    """Cut the pieces further, each stretch with the instant that decides its owner and price: the start of its piece."""
    return [(time, piece.start) for piece in pieces for time in (piece.cut(cuts) if cuts else (piece,))]


def _owned(part: Slice, reference_data: ReferenceData, row: GpuTime, at: datetime) -> GpuUsage:
    owner = reference_data.namespaces.owner(row.cluster, row.namespace, at)
    return GpuUsage(
        owner.team if owner else "", owner is not None and owner.platform, row.cluster, row.namespace, row.accelerator,
        row.resource, at, row.device_us, row.unit_us, part.month, part.correction,
    )  # fmt: skip


def covered_usage(
    reference_data: ReferenceData, part: Slice, owned: Sequence[GpuUsage], carried: Iterable[InterruptedUsage]
) -> Cover:
    """Split owned usage into what commitments pay for and the rest."""
    if not reference_data.commitments.of_month(part.window):
        return Cover(rest=list(owned))
    return cover(
        owned, [item.usage for item in carried], reference_data.commitments, reference_data.card, window=part.window,
        month=part.month, used_before=_used_before(reference_data, part) if part.correction else None,
    )  # fmt: skip


def cover_of(part: Slice, reference_data: ReferenceData, namespaces: Namespaces | None = None) -> Cover:
    """Return what the commitments of the reference data pay for in the slice, and what they have left."""
    if not reference_data.commitments.of_month(part.window):
        return Cover()
    owned = [usage for usage, _ in device_usage(part, reference_data, namespaces=namespaces) if usage.team]
    carried = [item for item, _ in carried_usage(part, reference_data, namespaces=namespaces)]
    return covered_usage(reference_data, part, _together(owned) if part.ahead else owned, carried)


def _together(usages: Iterable[GpuUsage]) -> list[GpuUsage]:
    """Sum usage to one item per place and piece, so that expected usage merges with reported usage."""
    sums: dict[UsageId, GpuUsage] = {}
    for usage in usages:
        name = usage_id(usage)
        before = sums.get(name)
        sums[name] = usage if before is None else structs.replace(
            before, device_us=EXACT.add(before.device_us, usage.device_us), unit_us=EXACT.add(before.unit_us, usage.unit_us)
        )  # fmt: skip
    return list(sums.values())


def _used_before(reference_data: ReferenceData, late: Slice) -> dict[str, Decimal]:
    """Return what each commitment paid for of the month in earlier closes: its own, and each that billed its late usage."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    standing = Close.objects.filter(withdrawn_at=None)
    own = standing.get(start=late.window.start).close_seq
    closings = standing.filter(close_seq__gte=own, close_seq__lt=late.epochs.before).order_by("close_seq")
    first = 0
    for close_seq in closings.values_list("close_seq", flat=True):
        # each close billed only what was learned since the one before it
        epochs, first = EpochFilter(before=close_seq, first=first), close_seq
        part = replace(late, epochs=epochs)
        owned = [usage for usage, _ in device_usage(part, reference_data) if usage.team]
        carried = [item.usage for item, _ in carried_usage(part, reference_data)]
        found = cover(
            owned, carried, reference_data.commitments, reference_data.card, window=late.window, month=late.month,
            used_before=sums,
        )  # fmt: skip
        for item in found.covered:
            sums[item.commitment.name] = EXACT.add(sums[item.commitment.name], item.usage.device_us)
    return dict(sums)


def listed_usage(
    part: Slice, reference_data: ReferenceData, grain: Grain, *, cuts: Collection[datetime] = ()
) -> Iterator[RatedUsage]:
    """Yield usage of teams on lines at list prices, without unowned or unpriced usage."""
    lines = _Lines(part, reference_data, None, CommitmentBook(()))
    yield from _devices(lines, grain, cuts, UNJUDGED)
    yield from _tokens(lines, grain, cuts)


def rated_usage(
    part: Slice, reference_data: ReferenceData, grain: Grain, reading: Reading | None = None, *,
    verdicts: Verdicts = UNJUDGED, cuts: Collection[datetime] = (), faults: dict[str, str] | None = None,
) -> Iterator[RatedUsage]:  # fmt: skip
    """Yield usage of teams on the lines of a close: on demand, under commitments, adjusted, waived, tokens.

    `reading`: filter of usage. `verdicts`: on jobs; without them, no usage is adjusted. `cuts`: as in `device_usage`, for
    days. `faults`: receives the teams whose commitments raise, of which these lines are left out; without it, that raises
    TeamRatingError.
    """
    lines = _Lines(part, reference_data, reading, reference_data.commitments)
    if lines.includes("gpu", COMMITMENT, "efficiency"):
        yield from _devices(lines, grain, cuts, UNJUDGED if part.correction else verdicts)
    if lines.includes("gpu", COMMITMENT):
        yield from lines.parted(faults)
    if lines.includes("interruption"):
        yield from _carried(lines, grain, cuts)
    if lines.includes("tokens"):
        yield from _tokens(lines, grain, cuts)


@dataclass(slots=True)
class _Line:
    """Line of a piece of usage, with the parts that wait because a commitment may pay for some of them.

    Each part has its order, and the quantity that the platform does not waive.
    """

    key: LineKey
    price: Decimal
    usage: GpuUsage
    committed: bool
    waiting: list[tuple[Order, RatedUsage, Decimal]] = field(default_factory=list)

    def at(self, place: Place, row: GpuTime) -> RatedUsage:
        """Return a part of the line, at list price."""
        quantity = row.unit_us if self.key.unit == SLICE_HOURS else row.device_us
        return RatedUsage(self.key, self.price, quantity, place, first=row.first, last=row.last)


class _Lines:
    """Device and token lines of one slice, each looked up once for all of its parts."""

    def __init__(self, part: Slice, reference_data: ReferenceData, reading: Reading | None, book: CommitmentBook) -> None:
        self.part, self.reference_data, self.reading, self.book = part, reference_data, reading, book
        self.teams = {one.team for one in book.of_month(part.window) if self.asked(one.team)}
        self._lines: dict[UsageId, _Line | None] = {}
        self._tokens: dict[tuple[datetime, str, str, str, str, str], tuple[LineKey, Decimal] | None] = {}

    def asked(self, team: str) -> bool:
        return bool(team) and (self.reading is None or team in self.reading.teams)

    def includes(self, *kinds: str) -> bool:
        """Return True if lines of one of the kinds are requested."""
        return self.reading is None or self.reading.kinds is None or not self.reading.kinds.isdisjoint(kinds)

    def readings(self, grain: Grain) -> list[tuple[frozenset[Detail], Namespaces | None]]:
        """Return details and namespaces to read: in the order of time where a commitment may pay for a part."""
        by, namespaces = DETAILS[grain], None if self.reading is None else self.reading.namespaces
        if not self.teams or grain is Grain.LINE or namespaces is None:
            # without a filter of namespaces, one read is ordered for all teams
            return [(by | IN_ORDER if self.teams and grain is not Grain.LINE else by, namespaces)]
        # ordered reads are far larger: only namespaces of teams with commitments need them
        theirs = {name for name in namespaces if self.reference_data.namespaces.teams(*name) & self.teams}
        return [(by | IN_ORDER, theirs), (by, set(namespaces) - theirs)]

    def line(self, usage: GpuUsage) -> _Line | None:
        """Return the line of usage; None if no requested team pays for it, or it has no price."""
        name = usage_id(usage)
        if name not in self._lines:
            self._lines[name] = self._found(usage)
        return self._lines[name]

    def _found(self, usage: GpuUsage) -> _Line | None:
        if usage.platform or not self.asked(usage.team):
            return None
        try:
            key, price = gpu_line(usage, self.reference_data.card)
        except UnpricedError:
            return None
        committed = usage.team in self.teams and bool(self.book.for_usage(usage, self.reference_data.card))
        return _Line(key, price.price, usage, committed)

    def carried(
        self, by: Collection[Detail], namespaces: Namespaces | None, cuts: Collection[datetime]
    ) -> Mapping[tuple[UsageId, Order], Decimal]:
        """Return the waived quantity of each part of a line: no commitment pays for it, and no policy adjusts it."""
        parts: dict[tuple[UsageId, Order], Decimal] = defaultdict(Decimal)
        for item, row in carried_usage(self.part, self.reference_data, by, namespaces=namespaces, cuts=cuts):
            line, name = self.line(item.usage), (usage_id(item.usage), _order(row))
            if line is not None:
                parts[name] = EXACT.add(parts[name], line.at(Place(), row).quantity)
        return parts

    def token_line(self, usage: TokenSum, source: str, token_class: str) -> tuple[LineKey, Decimal] | None:
        """Return the line of tokens of a class, and its price; None if there is no price."""
        name = (usage.at, usage.team, source, usage.consumer, usage.model, token_class)
        if name not in self._tokens:
            try:
                self._tokens[name] = token_line(usage, token_class, self.reference_data.card)
            except UnpricedError:
                self._tokens[name] = None
        return self._tokens[name]

    def parted(self, faults: dict[str, str] | None) -> Iterator[RatedUsage]:
        """Yield the waiting parts, split as a close splits them, and the unused hours of commitments."""
        if not self.teams:
            return
        names = NamesByTeam(self.reference_data).namespaces(self.teams)

        def of(some: Collection[str]) -> list[RatedUsage]:
            book = CommitmentBook(one for one in self.book.commitments if one.team in some)
            found = cover_of(self.part, replace(self.reference_data, commitments=book), names)
            return list(self._parts(found, some))

        try:
            yield from rated_by_team(self.teams, str, of)
        except TeamRatingError as error:
            if faults is None:
                raise
            faults |= error.problems
            yield from of(self.teams - error.problems.keys())

    def _parts(self, found: Cover, teams: Collection[str]) -> Iterator[RatedUsage]:
        used: dict[UsageId, list[Used]] = defaultdict(list)
        for item in found.covered:
            key, price = used_line(item, self.reference_data.card)
            used[usage_id(item.usage)].append((key, price.price, item.usage.device_us))
        for name, line in self._lines.items():
            if line is not None and line.committed and line.usage.team in teams:
                yield from _in_order(line, used[name])
        for left in found.unused:
            span = left.commitment.part_of(self.part.window)
            if span is not None:
                charge = unused_charge(left)
                place = Place(span.start, left.commitment.name, "", span.end)
                yield RatedUsage(charge.key, charge.unit_price, charge.usage_quantity, place)


def _in_order(line: _Line, covered: list[Used]) -> Iterator[RatedUsage]:
    """Yield the parts of a line; the earliest, as far as commitments cover them, on the lines of the commitments."""
    for _, item, free in sorted(line.waiting, key=itemgetter(0)):
        # `free` excludes waived time, which stays on the line: no commitment pays for it
        rest = item.quantity
        for number, (key, price, hours) in enumerate(covered):
            if part := min(free, hours):
                covered[number] = key, price, EXACT.subtract(hours, part)
                free, rest = EXACT.subtract(free, part), EXACT.subtract(rest, part)
                yield structs.replace(item, key=key, price=price, quantity=part, list_price=line.price)
        if rest:
            yield structs.replace(item, quantity=rest)


def _devices(lines: _Lines, grain: Grain, cuts: Collection[datetime], verdicts: Verdicts) -> Iterator[RatedUsage]:
    part, reference_data = lines.part, lines.reference_data
    starts = [time.start for time, _ in stretches(part.devices, cuts)]
    policies = {piece.start: reference_data.policies.at(piece.start) for piece in part.devices} if verdicts else {}
    job: frozenset[Detail] = frozenset({"job"}) if verdicts else frozenset()
    # rules are read only if a verdict can adjust something
    carried_is_free = not verdicts or rules_of(part.epochs.before).carried_is_free
    for by, namespaces in lines.readings(grain):
        # without verdicts and commitments no part of a line is treated differently
        told_apart = bool(verdicts) or (bool(lines.teams) and grain is not Grain.LINE)
        carried = lines.carried(by | job, namespaces, cuts) if told_apart else {}
        for usage, row in device_usage(part, reference_data, by | job, namespaces=namespaces, cuts=cuts):
            line = lines.line(usage)
            if line is None:
                continue
            order, item = _order(row), line.at(_place(grain, row, starts), row)
            free = max(EXACT.subtract(item.quantity, carried.get((usage_id(usage), order), NOTHING)), NOTHING)
            if line.committed:
                line.waiting.append((order, item, free))
            else:
                yield item
            policy = policies.get(usage.at)
            verdict = policy and verdicts.get((usage.team, usage.cluster, usage.namespace, row.job, policy.name))
            adjusted = free if carried_is_free else item.quantity
            if policy and verdict and adjusted:
                key = line.key.changed(kind="efficiency", policy=policy.name, reason=verdict.reason)
                change = EXACT.multiply(line.price, verdict.multiplier - 1)
                yield structs.replace(item, key=key, price=change, quantity=adjusted)


def _carried(lines: _Lines, grain: Grain, cuts: Collection[datetime]) -> Iterator[RatedUsage]:
    starts = [time.start for time, _ in stretches(lines.part.devices, cuts)]
    namespaces = None if lines.reading is None else lines.reading.namespaces
    found = carried_usage(lines.part, lines.reference_data, DETAILS[grain], namespaces=namespaces, cuts=cuts)
    for item, row in found:
        line = lines.line(item.usage)
        if line is not None:
            key = line.key.changed(kind="interruption", policy=item.policy, reason=item.reason)
            yield structs.replace(line.at(_place(grain, row, starts), row), key=key, price=-line.price)


def _tokens(lines: _Lines, grain: Grain, cuts: Collection[datetime]) -> Iterator[RatedUsage]:
    starts = [time.start for time, _ in stretches(lines.part.tokens, cuts)]
    dimensions, hourly = None if lines.reading is None else lines.reading.dimensions, grain is Grain.HOUR
    found = token_usage(lines.part, lines.reference_data, hourly=hourly, dimensions=dimensions, cuts=cuts)
    for usage, row in found:
        if not lines.asked(usage.team):
            continue
        place = Place(row.hour, f"{row.source}/{row.model}", row.site) if hourly else _place(grain, row, starts)
        # a request has tokens of several classes: only the first that it used counts it
        once = row.requests
        for token_class, count in usage.tokens.items():
            line = lines.token_line(usage, row.source, token_class)
            if line is not None:
                counted = once if count else 0
                yield RatedUsage(*line, Decimal(count), place, requests=row.requests, requests_once=counted)
                once -= counted


def _order(row: GpuTime) -> Order:
    return row.piece, row.hour, row.job, row.site, row.queue, row.allocation, row.pool, row.tier


def _place(grain: Grain, row: GpuTime | TokenSums, starts: Sequence[datetime]) -> Place:
    if grain is Grain.DAY or (grain is Grain.WORKLOAD_DAY and isinstance(row, TokenSums)):
        return Place(starts[row.piece])
    if grain is Grain.LINE or isinstance(row, TokenSums):
        return Place()
    if grain is Grain.HOUR:
        return Place(row.hour, row.job, row.site)
    if grain is Grain.WORKLOAD_DAY:
        return Place(starts[row.piece], row.job, row.site, None, row.queue, 0, row.pool, row.tier)
    return Place(None, row.job, "", None, row.queue if grain is Grain.JOB else "", row.allocation)
