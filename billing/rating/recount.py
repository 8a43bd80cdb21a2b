"""A closed month's tokens charged anew from a file of their records, beside what its close charged.

The file is summed by another engine (`billing.usage.token_file`) than the close used; owners and prices are those that the
close knew. Equal is equal to the last digit, line by line.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from billing.rating.books import Books
from billing.rating.models import Charge as ChargeRow
from billing.rating.selectors import books_known
from billing.usage.token_file import file_token_sums
from billing.usage.token_sums import TokenSums
from metering.intervals import Interval, month_of
from pricing.rating import Charge, TokenSum, Unpriced, rate_tokens

Figures = tuple[Decimal, Decimal]


@dataclass(frozen=True, slots=True)
class Difference:
    """A line of which file and close say something else: quantity and unit price, None where one has no such line."""

    team: str
    consumer: str
    model: str
    token_class: str
    price_version: str
    billed: Figures | None
    recounted: Figures | None


@dataclass(frozen=True)
class Recount:
    """What the file gives: its records, its lines, their amount, and where they are not those of the close.

    `unowned`: consumers whose records nobody owns; `unpriced`: what had no price. Neither can be in a closed month.
    """

    records: int
    lines: int
    amount: Decimal
    differences: list[Difference]
    unowned: list[str]
    unpriced: list[Unpriced]

    @property
    def holds(self) -> bool:
        """Whether the file gives what was billed, line by line."""
        return not (self.differences or self.unowned or self.unpriced)


def tokens_recount(*, path: Path, window: Interval, zone: str, ordinal: int) -> Recount:
    """Charge the records of a Parquet file as the `ordinal`-th close knew owners and prices.  Raises UsageFileError."""
    books = books_known(ordinal)
    pieces = window.cut(books.card.changes() | books.consumers.changes())
    sums = file_token_sums(path, pieces, [books.card.context_bounds(piece.start) for piece in pieces])
    owned, unowned = _owned(sums, books, pieces, month_of(window.start, zone))
    rated = rate_tokens(owned, books.card)
    return Recount(
        sum(item.requests for item in sums), len(rated.charges),
        sum((charge.amount for charge in rated.charges), Decimal("0.00")), _differences(rated.charges, ordinal),
        unowned, rated.unpriced,
    )  # fmt: skip


def _owned(
    sums: Iterable[TokenSums], books: Books, pieces: list[Interval], month: str
) -> tuple[list[TokenSum], list[str]]:
    found, unowned = [], set()
    for item in sums:
        at = pieces[item.piece].start
        owner = books.consumers.owner(item.source, item.consumer, at)
        if owner is None:
            unowned.add(f"{item.source}/{item.consumer}")
        else:
            found.append(TokenSum(owner.team, item.consumer, item.model, at, item.by_class, month))
    return found, sorted(unowned)


def _differences(charges: Iterable[Charge], ordinal: int) -> list[Difference]:
    told = ("team", "consumer", "sku", "token_class", "price_version")
    rows = ChargeRow.objects.filter(closing=ordinal, kind="tokens", correction=False)
    billed = {row[0]: row[1:] for row in rows.values_list("line_key", *told, "usage_quantity", "unit_price")}
    again = {
        charge.key.digest(): (*(getattr(charge.key, name) for name in told), charge.usage_quantity, charge.unit_price)
        for charge in charges
    }
    keys = sorted(key for key in billed.keys() | again.keys() if billed.get(key) != again.get(key))
    return sorted((_difference(billed.get(key), again.get(key)) for key in keys), key=_name)


def _difference(billed: tuple | None, again: tuple | None) -> Difference:
    line = billed or again or ()
    return Difference(*line[:5], billed[5:] if billed else None, again[5:] if again else None)


def _name(item: Difference) -> tuple[str, ...]:
    return (item.team, item.consumer, item.model, item.token_class, item.price_version)
