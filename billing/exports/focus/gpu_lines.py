"""Which line a piece of device usage stands on, hour by hour: what commitments pay for is used up in the order of time."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from billing.exports.focus.readings import Reading
from billing.exports.focus.shares import Place
from billing.rating.commitments import Slice, covered_usage
from billing.rating.interruptions import interrupted_usage
from billing.rating.reference_data import ReferenceData
from billing.rating.team_isolation import TeamRatingError, rated_by_team
from pricing.commitments import CommitmentBook, UsageId, unused_line, usage_id, used_line
from pricing.money import EXACT
from pricing.rate_card import SLICE_HOURS, GpuPrice
from pricing.rating import GpuUsage, InterruptedUsage, LineKey, gpu_key

NOTHING = Decimal(0)


@dataclass
class HeldLine:
    """The line of one piece of usage; where a commitment may pay for a part of it, its `places` wait to be parted."""

    key: LineKey
    price: GpuPrice
    usage: GpuUsage
    committed: bool
    places: dict[Place, Decimal] = field(default_factory=dict)

    @property
    def by_unit(self) -> bool:
        """Whether slices are counted and not whole devices."""
        return self.price.unit == SLICE_HOURS


@dataclass(frozen=True, slots=True)
class HeldPart:
    """Usage of a line at a place; `list_price` of usage that a commitment pays for."""

    key: LineKey
    place: Place
    quantity: Decimal
    list_price: Decimal | None = None


Waiting = dict[UsageId, HeldLine]


class HeldLines:
    """The lines of the device usage of some teams in one slice of time."""

    def __init__(self, reference_data: ReferenceData, part: Slice, reading: Reading) -> None:
        self._books, self._part, self._reading = reference_data, part, reading
        self._lines: dict[tuple[int, str, str, str, str], HeldLine | None] = {}

    def line(self, index: int, cluster: str, namespace: str, accelerator: str, resource: str) -> HeldLine | None:
        """The line of usage in the `index`-th piece of time; None where none of the teams pays for it."""
        name = (index, cluster, namespace, accelerator, resource)
        if name not in self._lines:
            self._lines[name] = self._found(*name)
        return self._lines[name]

    def _found(self, index: int, cluster: str, namespace: str, accelerator: str, resource: str) -> HeldLine | None:
        at = self._part.pieces[index].start
        owner = self._books.namespaces.owner(cluster, namespace, at)
        if owner is None or owner.platform or owner.team not in self._reading.teams:
            return None
        usage = GpuUsage(
            owner.team, False, cluster, namespace, accelerator, resource, at, NOTHING, NOTHING, self._part.month,
            self._part.correction,
        )  # fmt: skip
        version, price = self._books.card.gpu_price(accelerator, resource, at)
        committed = self._books.commitments.for_usage(usage, self._books.card) is not None
        return HeldLine(gpu_key(usage, version.name, price), price, usage, committed)

    def parted(self, faults: dict[str, str]) -> list[HeldPart]:
        """What waited, parted as rating parts it, and what commitments have left, at the start of their time.

        Teams of which that raises are left out, and told with it in `faults`.
        """
        reference_data, part = self._books, self._part
        if not reference_data.commitments.of_month(part.window):
            return []
        waiting = {usage_id(line.usage): line for line in self._lines.values() if line is not None and line.committed}
        teams = {one.team for one in reference_data.commitments.commitments if one.team in self._reading.teams}
        if not teams:
            return []
        carried = interrupted_usage(
            part.pieces,
            part.epochs,
            reference_data,
            part.month,
            correction=part.correction,
            namespaces=self._reading.namespaces,
        )

        def of(some: Collection[str]) -> list[HeldPart]:
            return self._parted({name: line for name, line in waiting.items() if line.usage.team in some}, some, carried)

        try:
            return rated_by_team(teams, str, of)
        except TeamRatingError as error:
            faults |= error.problems
            return of(teams - error.problems.keys())

    def _parted(self, waiting: Waiting, teams: Collection[str], carried: Sequence[InterruptedUsage]) -> list[HeldPart]:
        part, bought = self._part, (one for one in self._books.commitments.commitments if one.team in teams)
        reference_data = replace(self._books, commitments=CommitmentBook(bought))
        found = covered_usage(reference_data, part, [_summed(line) for line in waiting.values()], carried)
        used = {usage_id(item.usage): item for item in found.covered}
        parts: list[HeldPart] = []
        for name, line in waiting.items():
            item = used.get(name)
            key, covered = (used_line(item, reference_data.card)[0], item.usage.device_us) if item else (line.key, NOTHING)
            parts += _in_order(line, key, covered)
        for left in found.unused:
            span = left.commitment.part_of(part.window)
            if span is not None:
                place = Place(span.start, left.commitment.name, "", span.end)
                parts.append(HeldPart(unused_line(left), place, left.device_us))
        return parts


def _summed(line: HeldLine) -> GpuUsage:
    total = NOTHING
    for quantity in line.places.values():
        total = EXACT.add(total, quantity)
    usage = line.usage
    return GpuUsage(
        usage.team, usage.platform, usage.cluster, usage.namespace, usage.accelerator, usage.resource, usage.at, total,
        total, usage.charge_period, usage.correction,
    )  # fmt: skip


def _in_order(line: HeldLine, used: LineKey, covered: Decimal) -> Iterator[HeldPart]:
    for place in sorted(line.places):
        quantity = line.places[place]
        first = min(covered, quantity)
        covered = EXACT.subtract(covered, first)
        if first:
            yield HeldPart(used, place, first, line.price.price)
        if quantity > first:
            yield HeldPart(line.key, place, EXACT.subtract(quantity, first))
