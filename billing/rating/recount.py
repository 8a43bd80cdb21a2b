"""Recount of a closed month's tokens from files of their records, compared with the charges of its close.

The files are summed by another engine (`billing.usage.token_file`) than the close used; owners and prices are those that the
close knew. Figures must agree to the last digit, line by line.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache

from billing.rating.models import Charge, TokenLayout
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.usage.store.sums import Bounds, TokenSums
from metering.intervals import Interval, month_of
from pricing.money import EXACT, amount_places, round_part
from pricing.rate_card import MILLION_TOKENS, UnpricedError
from pricing.rating import DIVISOR, Unpriced

Figures = tuple[Decimal, Decimal]
TokenEngine = Callable[[Sequence[Interval], Sequence[Bounds]], Iterable[TokenSums]]
"""Function that sums records in pieces of time; the bounds are those of the prompt-length buckets in each piece."""
Name = tuple[str, str, str, str, str, str]
"""Key of a token line: team, consumer, model, class, price version, month of its usage."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A line on which file and close differ: quantity and unit price, None where one has no such line."""

    team: str
    consumer: str
    model: str
    token_class: str
    price_version: str
    billed: Figures | None
    recounted: Figures | None


@dataclass(frozen=True)
class Recount:
    """Result of a recount: records, lines, their amount, and the differences from the close.

    `unowned`: consumers whose records have no owner; `unpriced`: tokens without a price. A closed month has neither.
    """

    records: int
    lines: int
    amount: Decimal
    differences: list[Difference]
    unowned: list[str]
    unpriced: list[Unpriced]

    @property
    def holds(self) -> bool:
        """Return True if the file gives what was billed, line by line."""
        return not (self.differences or self.unowned or self.unpriced)


def tokens_recount(*, engine: TokenEngine, window: Interval, zone: str, close_seq: int) -> Recount:
    """Charge the sums of an engine by the owners and prices that close `close_seq` knew.  Raises what the engine raises."""
    reference_data = reference_data_known(close_seq)
    pieces = reference_data.token_pieces(window)
    sums = list(engine(pieces, [reference_data.card.context_bounds(piece.start) for piece in pieces]))
    layouts = TokenLayout.objects.filter(close_seq=close_seq, gathered=True)
    gathers = frozenset(layouts.values_list("team", flat=True))
    priced = _priced(sums, reference_data, pieces, month_of(window.start, zone), gathers)
    return Recount(
        sum(item.requests for item in sums), len(priced.lines), priced.amount(),
        _differences(priced.figures(), _billed(close_seq)), sorted(priced.unowned),
        # sorted by repr: a version may be None, which does not compare with text
        [Unpriced(*key[:2], Decimal(count), "tokens") for key, count in sorted(priced.missing.items(), key=repr)],
    )  # fmt: skip


@dataclass
class _Priced:
    """Tokens and price of each line; unowned consumers; unpriced tokens by SKU and version."""

    lines: dict[Name, tuple[int, Decimal]] = field(default_factory=dict)
    unowned: set[str] = field(default_factory=set)
    missing: dict[tuple[str, str | None], int] = field(default_factory=dict)

    def figures(self) -> dict[Name, Figures]:
        """Return quantity and price of each line, as `_billed` does."""
        return {name: (Decimal(count), price) for name, (count, price) in self.lines.items()}

    def amount(self) -> Decimal:
        """Return the sum of the lines, each rounded once."""
        divisor = DIVISOR[MILLION_TOKENS]
        lines = (EXACT.multiply(Decimal(count), price) for count, price in self.lines.values())
        return sum((round_part(line, divisor, amount_places()) for line in lines), Decimal("0.00"))


def _priced(
    sums: Iterable[TokenSums], reference_data: ReferenceData, pieces: list[Interval], month: str, gathers: Collection[str]
) -> _Priced:
    """Price the sums, with each price looked up once and each owner once per piece.

    A month has a handful of prices and thousands of consumers.
    """
    found = _Priced()

    @cache
    def owner_of(source: str, consumer: str, piece: int) -> str | None:
        owner = reference_data.consumers.owner(source, consumer, pieces[piece].start)
        return owner.team if owner else None

    @cache
    def price_of(model: str, token_class: str, piece: int) -> tuple[str, Decimal] | UnpricedError:
        try:
            version, price = reference_data.card.token_price(model, token_class, pieces[piece].start)
        except UnpricedError as error:
            return error
        return version.name, price

    for item in sums:
        team = owner_of(item.source, item.consumer, item.piece)
        if team is None:
            found.unowned.add(f"{item.source}/{item.consumer}")
            continue
        for token_class, count in item.by_class.items():
            if not count:
                continue
            priced = price_of(item.model, token_class, item.piece)
            if isinstance(priced, UnpricedError):
                key = (priced.sku, priced.version)
                found.missing[key] = found.missing.get(key, 0) + count
                continue
            name = (team, "" if team in gathers else item.consumer, item.model, token_class, priced[0], month)
            before = found.lines.get(name)
            found.lines[name] = (count if before is None else before[0] + count, priced[1])
    return found


def _billed(close_seq: int) -> dict[Name, Figures]:
    rows = Charge.objects.filter(close_seq=close_seq, kind="tokens", correction=False)
    name = ("team", "consumer", "sku", "token_class", "price_version", "charge_period")
    return {row[:6]: row[6:] for row in rows.values_list(*name, "usage_quantity", "unit_price")}


def _differences(again: dict[Name, Figures], billed: dict[Name, Figures]) -> list[Difference]:
    names = sorted(name for name in billed.keys() | again.keys() if billed.get(name) != again.get(name))
    return [Difference(*name[:5], billed.get(name), again.get(name)) for name in names]
