"""PURE: checks of a record's values: instants, shares and decimals that the ledger stores as they are written."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from metering.messages import Message, UserError

MAX_DIGITS: Final = 60
"""Most digits of a decimal in a record; no measured value needs more, and PostgreSQL refuses far more."""

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
WIDEST_OFFSET: Final = timedelta(hours=15, minutes=59)
"""Largest offset that PostgreSQL accepts; no place on earth is further from UTC than 14 hours."""


class RecordError(UserError, ValueError):
    """Error of a record that breaks the contract; `field` names the offending field where one can be named."""

    code = "usage_record"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(Message.of(message))
        self.field = field


def check_instant(field: str, value: datetime) -> None:
    """Raise RecordError for an instant before 2000 or from 2200 on, or with an offset that PostgreSQL refuses."""
    if not EARLIEST <= value < LATEST:
        raise RecordError(Message(
            "%(field)s %(value)s is not between %(first)s and %(last)s",
            field=field, value=value.isoformat(), first=EARLIEST.year, last=LATEST.year,
        ), field)
    if value.tzinfo is not UTC and abs(value.utcoffset() or timedelta()) > WIDEST_OFFSET:
        raise RecordError(Message(
            "%(field)s %(value)s is more than %(widest)s from UTC",
            field=field, value=value.isoformat(), widest=WIDEST_OFFSET,
        ), field)


def check_order(first: str, start: datetime, second: str, end: datetime | None) -> None:
    """Raise RecordError for an end before its start, and for either instant that `check_instant` refuses."""
    check_instant(first, start)
    if end is None:
        return
    check_instant(second, end)
    if end < start:
        raise RecordError(Message(
            "%(second)s %(end)s is before %(first)s %(start)s",
            second=second, end=end.isoformat(), first=first, start=start.isoformat(),
        ), second)


def check_fraction(fraction: Decimal | None, unknown: str | None) -> None:
    """Raise RecordError unless the share is above 0 and at most 1, or null with a reason why it is unknown."""
    if (fraction is None) != (unknown is not None):
        raise RecordError(Message("device_fraction is null exactly where share_unknown says why"), "device_fraction")
    if fraction is None:
        return
    if not fraction.is_finite() or not 0 < fraction <= 1:
        raise RecordError(Message(
            "device_fraction %(value)s must be above 0 and at most 1", value=fraction
        ), "device_fraction")
    check_decimals("device_fraction", fraction, 12)


def check_decimals(field: str, value: Decimal, places: int) -> None:
    """Raise RecordError for digits that the ledger would round, counted as written: no context rounds them first."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -MAX_DIGITS <= exponent <= MAX_DIGITS or len(digits) > MAX_DIGITS:
        raise RecordError(Message(
            "%(field)s %(value)s is written with more than %(most)s digits",
            field=field, value=str(value)[:40], most=MAX_DIGITS,
        ), field)
    while exponent < 0 and digits and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if digits and exponent < -places:
        raise RecordError(Message(
            "%(field)s %(value)s has more than %(places)s decimals", field=field, value=value, places=places
        ), field)
