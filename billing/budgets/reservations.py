"""Reservations of allowed requests, kept in Valkey for all processes until their usage is in the ledger.

`reservations.lua` checks and reserves in one step. Valkey may lose everything: then reservations are lost, which is at
most the cost of the requests of those moments, and counters come back from the ledger with the next question.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from billing.budgets.reference import BudgetLine

PREFIX: Final = "suanpan:{budgets}:"
"""Prefix of all keys; the braces keep them in one slot of a cluster."""
PLACES: Final = 4
CENT: Final = Decimal("0.01")
MOST_UNITS: Final = 2 * 10**18
"""Largest spending or reservation that is counted, so that a counter of 64 bits never overflows; also the limit of a
budget without a cap.
"""
MOST_NAMES: Final = 5_000
TIMEOUT_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 1.0
"""Seconds for which requests fail at once after Valkey did not answer."""

log = logging.getLogger(__name__)


class ReservationsAwayError(Exception):
    """Error: Valkey does not answer, or accepts nothing, so that reservations are unknown."""


@dataclass(frozen=True, slots=True)
class Reservation:
    id: str
    amount: Decimal
    until: datetime


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter as it was before the reservation: `spent` of the ledger as of an instant, and `reserved`."""

    spent: Decimal
    reserved: Decimal
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """Counters in the order of the lines, and the reservation of the record, made now (`is_new`) or before."""

    counters: Sequence[Counted]
    reservation: Reservation | None
    is_new: bool


class _Answer(msgspec.Struct):
    states: list[tuple[str, str, str]]
    id: str
    amount: str
    ends: str
    is_new: bool


_decode = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder().encode


class Reservations:
    """Reservations of an installation. Every method may be called by any thread; raises ReservationsAwayError."""

    def __init__(self, url: str, prefix: str = PREFIX) -> None:
        self._prefix, self._away_until = prefix, 0.0
        # one retry, without a pause: a gateway waits for the answer
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 1)
        )
        self._script = self._client.register_script(Path(__file__).with_suffix(".lua").read_text())

    def take(
        self, lines: Sequence[tuple[BudgetLine, Decimal | None]], amount: Decimal | None, *, seconds: int, key: bytes | None
    ) -> Taken:
        """Reserve, unless spent and reserved reach the limit of a line; `lines`: with the limit of each, None for none.

        `key`: of the record that ends the reservation; `amount` None: none is made.
        """
        arguments = {
            "lines": [{**_line(line), "limit": _limit(limit)} for line, limit in lines],
            "wanted": {
                "id": secrets.token_hex(12), "amount": "" if amount is None else str(amount),
                "units": "" if amount is None else str(_units(amount)), "seconds": seconds,
                "name": "" if key is None else key.hex(),
            },
        }  # fmt: skip
        answer = _decode(self._call("check", arguments))
        made = None
        if answer.id:
            until = datetime.fromtimestamp(int(answer.ends) / 1000, UTC)
            made = Reservation(answer.id, Decimal(answer.amount), until)
        counters = [_counted(line, *state) for (line, _), state in zip(lines, answer.states, strict=True)]
        return Taken(counters, made, answer.is_new)

    def release(self, identity: str) -> bool:
        """End the reservation of a request that was not made. False if there is none."""
        return bool(self._call("release", {"id": identity}))

    def waiting(self) -> list[bytes]:
        """Return keys of records to look for in the ledger, at most MOST_NAMES at a time, in turns."""
        return [bytes.fromhex(name.decode()) for name in self._call("waiting", {"most": MOST_NAMES})]

    def count(self, lines: Sequence[BudgetLine], *, landed: Sequence[bytes], since: int) -> None:
        """Set new counters. `landed`: keys of records that were in the ledger before a refresh above `since` began."""
        named = [key.hex() for key in landed]
        self._call("count", {"lines": [_line(line) for line in lines], "landed": named, "since": since})

    def _call(self, operation: str, arguments: dict[str, Any]) -> Any:
        # otherwise every request would wait for the timeout while Valkey is away
        if monotonic() < self._away_until:
            raise ReservationsAwayError("Valkey did not answer a moment ago")
        try:
            return self._script(keys=[self._prefix], args=[operation, _encode(arguments)])
        except redis.RedisError as error:
            self._away_until = monotonic() + AWAY_SECONDS
            log.warning("reservations: %s", error)
            raise ReservationsAwayError(str(error)) from error


@cache
def reservations() -> Reservations:
    """Return the reservations of this installation.  Raises ReservationsAwayError if none are configured."""
    if not settings.CACHE_URL:
        raise ReservationsAwayError("neither CACHE_URL nor a BROKER_URL of Valkey is set")
    return Reservations(settings.CACHE_URL)


def _line(line: BudgetLine) -> dict[str, Any]:
    return {
        "id": f"{line.id}:{line.period}", "generation": line.generation, "spent": str(_units(line.spent)),
        "as_of": line.as_of.isoformat(),
    }  # fmt: skip


def _units(amount: Decimal) -> int:
    """Convert to whole ten-thousandths, MOST_UNITS at most; every amount has at most that many places."""
    return max(-MOST_UNITS, min(int(amount.scaleb(PLACES)), MOST_UNITS))


def _limit(limit: Decimal | None) -> str:
    return str(MOST_UNITS if limit is None else _units(limit))


def _counted(line: BudgetLine, used: str, spent: str, as_of: str) -> Counted:
    """Return the counter of a line; at the limit of a counter, the line's own, larger sum replaces it."""
    cost = Decimal(spent).scaleb(-PLACES).quantize(CENT)  # exact: the ledger has no smaller one
    reserved = Decimal(used).scaleb(-PLACES) - cost
    if abs(int(spent)) == MOST_UNITS:
        cost = max(cost, line.spent) if cost > 0 else min(cost, line.spent)
    return Counted(cost, reserved, datetime.fromisoformat(as_of))
