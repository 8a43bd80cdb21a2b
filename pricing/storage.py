"""PURE: storage by tier and requests by class. TB are decimal; TB-months are the mean of the bytes over the month."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from metering.messages import Message
from pricing.fields import Bound, FieldReader, InputError
from pricing.money import round_amount

BYTES_PER_TB: Final = 10**12
REQUESTS_PER_PRICE: Final = 1000
TB_MONTHS: Final = Bound("0", "1e9", "decimal TB over the whole month, 0.2 PB are 200")
BYTE_SECONDS: Final = Bound("0", "1e30", "bytes x seconds that they were kept", whole=True)
MONTH_SECONDS: Final = Bound("2419200", "2682000", "seconds of the month", whole=True)
PER_TB_MONTH: Final = Bound("0", "1e7", "currency per TB and month")
COUNT: Final = Bound("0", "1e18", "requests", whole=True)
PER_1000: Final = Bound("0", "1e6", "currency per 1000 requests")
STORAGE: Final = "storage"
REQUESTS: Final = "requests"
STORE_FIELDS: Final = (STORAGE, REQUESTS, "month_seconds")


@dataclass(frozen=True, slots=True)
class Tier:
    """TB-months that one tier stored, and their price; a hot TB costs as much as hundreds of cold ones."""

    name: str
    tb_months: Fraction
    price_per_tb_month: Fraction

    @property
    def fee(self) -> Fraction:
        """Return the fee = TB-months x price of the tier, exact; a line rounds it once.

        >>> Tier("hot", Fraction(1350), Fraction(23)).fee
        Fraction(31050, 1)

        Source: FS11.
        """
        return self.tb_months * self.price_per_tb_month


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests of one class (GET, PUT, LIST) and their price: a write costs more than ten times as much as a read."""

    name: str
    count: int
    price_per_1000: Fraction

    @property
    def fee(self) -> Fraction:
        """Return the fee = requests x price of 1000 of their class, exact; a line rounds it once.

        >>> RequestClass("PUT", 2_500_000_000, Fraction(4)).fee
        Fraction(10000000, 1)

        Source: FS11.
        """
        return Fraction(self.count, REQUESTS_PER_PRICE) * self.price_per_1000


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Usage of a store in one month."""

    tiers: tuple[Tier, ...] = ()
    requests: tuple[RequestClass, ...] = ()

    def lines(self) -> Iterator[tuple[str, str, Decimal]]:
        """Yield (storage or requests, tier or class, amount with 2 decimals) of each line."""
        for tier in self.tiers:
            yield STORAGE, tier.name, round_amount(tier.fee)
        for one in self.requests:
            yield REQUESTS, one.name, round_amount(one.fee)

    @property
    def total(self) -> Decimal:
        """Return the sum of the rounded lines."""
        return sum((amount for *_, amount in self.lines()), Decimal("0.00"))


def read_store_use(reader: FieldReader) -> StoreUse:
    """Read the fields `storage` and `requests` of a document; problems are noted with the reader.

    {"storage": [{"tier": "hot", "tb_months": "200" or "byte_seconds": n, "price_per_tb_month": "150"}],
     "requests": [{"class": "PUT", "count": 2500000000, "price_per_1000": "0.005"}], "month_seconds": n, for byte_seconds}

    Source: FS11.
    """
    seconds = reader.optional("month_seconds", MONTH_SECONDS)
    tiers = [_tier(one, seconds) for one in reader.mappings(STORAGE, "a tier of storage")]
    requests = [_requests(one) for one in reader.mappings(REQUESTS, "a class of requests")]
    return StoreUse(tuple(tier for tier in tiers if tier), tuple(one for one in requests if one))


def parse_store_use(fields: object) -> StoreUse:
    """Check a document of storage and requests.  Raises InputError with a message for every bad field."""
    reader = FieldReader(fields, "a month of storage")
    if not reader.problems:
        reader.finish((*STORE_FIELDS, "currency"))
        if not reader.has(STORAGE) and not reader.has(REQUESTS):
            reader.refuse(STORAGE, Message("is missing, and so is requests: give at least one of them"))
    found = read_store_use(reader) if reader.is_mapping else StoreUse()
    if reader.problems:
        raise InputError(reader.problems)
    return found


def _tier(reader: FieldReader, month_seconds: Fraction | None) -> Tier | None:
    reader.finish(("tier", "tb_months", "byte_seconds", "price_per_tb_month"))
    name, price = reader.text("tier"), reader.number("price_per_tb_month", PER_TB_MONTH)
    if reader.has("byte_seconds") and not reader.has("tb_months"):
        kept = reader.number("byte_seconds", BYTE_SECONDS)
        if month_seconds is None:
            reader.refuse("byte_seconds", Message("needs month_seconds of the document: 31 days are 2678400"))
            return None
        amount = None if kept is None else tb_months(int(kept), int(month_seconds))
    else:
        amount = reader.number("tb_months", TB_MONTHS)
        if reader.has("byte_seconds"):
            reader.refuse("byte_seconds", Message("is given beside tb_months: give one of them"))
    return None if amount is None or price is None else Tier(name, amount, price)


def _requests(reader: FieldReader) -> RequestClass | None:
    reader.finish(("class", "count", "price_per_1000"))
    name, price = reader.text("class"), reader.number("price_per_1000", PER_1000)
    count = reader.number("count", COUNT)
    return None if count is None or price is None else RequestClass(name, int(count), price)


def tb_months(byte_seconds: int, month_seconds: int) -> Fraction:
    """Return the mean of stored TB over the elapsed month.

    >>> tb_months(3 * 10**12 * 1_339_200, 2_678_400)
    Fraction(3, 2)
    """
    return Fraction(byte_seconds, month_seconds * BYTES_PER_TB)
