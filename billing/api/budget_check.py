"""`budgets/check` and `budgets/reservations`: the question read, the answer written, for Django and `gateway_requests`.

Any number of processes may answer: what is reserved is in Valkey, and all else is read from the database every few seconds.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from django.utils import timezone
from rest_framework.exceptions import APIException

from billing.api.bodies import Answer as HttpAnswer
from billing.api.bodies import TooLarge
from billing.budgets.check import MOST_SECONDS, Answer, Ask, check
from billing.budgets.reference import CurrentReference, Reference
from billing.budgets.reservations import Reservation, ReservationsAwayError, reservations
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import ApiToken
from metering.raw_json import repeated_key
from metering.token_keys import token_key

SCOPE: Final = "budgets:read"
PREFIX: Final = "/api/v1/budgets/"
ASKED: Final = {("GET", "check"), ("HEAD", "check"), ("POST", "reservations")}
MOST_BODY: Final = 16 * 1024
LONGEST_TEXT: Final = 512
MOST_TOKENS: Final = 10**9
MOST_AMOUNT: Final = Decimal(10**12)
QUESTION: Final = {
    "source": "gateway, as in its records", "consumer": "who is to pay, as in its records", "model": "model asked for",
    "id": "id that the record of this request will have: its reservation ends when the record is in the ledger",
    "reserve": "amount to reserve; 0 reserves nothing", "input_tokens": "tokens of the prompt, to reserve their price",
    "output_tokens": "most tokens of the answer, to reserve their price", "seconds": "how long to hold at most",
}  # fmt: skip
"""The fields of a question. Gateways may add their own, which nobody reads."""

_current = CurrentReference()


class Refused(APIException):
    """An answer that is an error: status and what to say. `wait`: seconds after which to ask again."""

    def __init__(self, status: int, detail: str, wait: int = 0) -> None:
        super().__init__(detail)
        self.status_code, self.default_detail, self.wait = status, HTTPStatus(status).phrase, wait


def budget_check(token: ApiToken, fields: Mapping[str, Any]) -> dict[str, Any]:
    """May this request spend? With a reservation unless `reserve` is 0.  Raises Refused."""
    ask, reserve = read_ask(fields)
    if token.source and ask.source != token.source:
        raise Refused(403, f"source {ask.source!r}: this token may ask for {token.source!r} only")
    now = timezone.now()
    reference = _current.at(now)
    if reference is None:
        raise Refused(503, "nothing is set up yet: ask again later", wait=1)
    if not _sees(token, ask, reference, now):
        raise Refused(404, "there is nothing here that you may see")
    try:
        return as_dict(check(ask, reference, reservations(), now, reserve=reserve), reference.currency)
    except ReservationsAwayError as error:
        raise _unavailable() from error


def reservation_release(identity: str) -> None:
    """End a reservation.  Raises Refused."""
    try:
        ended = reservations().release(identity)
    except ReservationsAwayError as error:
        raise _unavailable() from error
    if not ended:
        raise Refused(404, "no such reservation: it has ended")


def is_question(method: str, path: str) -> bool:
    """Whether `budget_answer` answers this; any other method and address is for Django to refuse."""
    action = path.removeprefix(PREFIX)
    return (method, action) in ASKED or (method == "DELETE" and action.startswith("reservations/"))


def budget_answer(token: ApiToken, method: str, path: str, query: str, body: bytes) -> HttpAnswer:
    """The answer of a process that has no other way to these addresses.  Raises Refused or TooLarge."""
    action = path.removeprefix(PREFIX)
    if method == "DELETE":
        reservation_release(action.removeprefix("reservations/"))
        return HTTPStatus.NO_CONTENT, "application/json", b"", []
    return _ok(budget_check(token, read_query(query) if action == "check" else read_fields(body)))


def _ok(found: dict[str, Any]) -> HttpAnswer:
    return HTTPStatus.OK, "application/json", msgspec.json.encode(found), []


def _sees(token: ApiToken, ask: Ask, reference: Reference, now: datetime) -> bool:
    """Whether the consumer's team is that of the token or below it, and one that the owner of the token may see."""
    owned = token.owner is not None and not access_of(token.owner).may(Right.READ)
    if token.team is None and not owned:
        return True
    owner = reference.consumers.owner(ask.source, ask.consumer, now)
    if owner is None or (token.team is not None and owner.team not in reference.teams.get(token.team.code, ())):
        return False
    return not owned or teams_visible_to(token.owner).filter(code=owner.team).exists()


def _unavailable() -> Refused:
    """Nobody knows what is reserved, so nobody says yes: whether to go on is the gateway's policy."""
    return Refused(503, "reservations cannot be reached: ask again in a second", wait=1)


def read_ask(fields: Mapping[str, Any]) -> tuple[Ask, bool]:
    """The question and whether to reserve.  Raises Refused with the field at fault.

    `reserve`: 0 asks without reserving, an amount reserves that much; without it the tokens given, or those of an ordinary
    request, are reserved at list price.
    """
    source, consumer = _text(fields, "source", required=True), _text(fields, "consumer", required=True)
    identity = _text(fields, "id")
    amount = _decimal(fields, "reserve")
    ask = Ask(
        source, consumer, _text(fields, "model"), token_key(source, identity) if identity else None, amount or None,
        _count(fields, "input_tokens", MOST_TOKENS), _count(fields, "output_tokens", MOST_TOKENS),
        _count(fields, "seconds", MOST_SECONDS),
    )  # fmt: skip
    return ask, amount is None or amount > 0


def _text(fields: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    value = fields.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or "\0" in value:
        raise Refused(400, f"{name}: {_shown_value(value)} must be text of at most {LONGEST_TEXT} characters without NUL")
    if required and not value:
        raise Refused(400, f"{name}: is missing")
    return value


def _decimal(fields: Mapping[str, Any], name: str) -> Decimal | None:
    text = fields.get(name)
    if text is None or text == "":
        return None
    try:
        value = Decimal(text) if isinstance(text, str) and len(text) <= 40 else Decimal("NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= MOST_AMOUNT or value != round(value, 4):
        bounds = f"from 0 to {MOST_AMOUNT} with at most 4 decimals"
        raise Refused(400, f"{name}: {_shown_value(text)} must be a decimal string {bounds}")
    return value


def _count(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) > most:
        raise Refused(400, f"{name}: {_shown_value(value)} must be a whole number from 0 to {most}")
    return int(text)


def _shown_value(value: object) -> str:
    """A value of a question in an error, at most so much of it as is read at a glance."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_query(query: str) -> Mapping[str, str]:
    """The question of a query.  Raises Refused."""
    fields: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in fields:
            raise Refused(400, f"{name[:40]!r} is given twice")
        fields[name] = value
    return fields


def read_fields(body: bytes) -> Mapping[str, Any]:
    """The question of a JSON body.  Raises Refused or TooLarge."""
    if len(body) > MOST_BODY:
        raise TooLarge(f"the body is larger than {MOST_BODY} bytes")
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Refused(400, "the body must be a JSON object")
    if key := repeated_key(body):
        raise Refused(400, f"{key[:40]!r} is given twice")
    return fields


def as_dict(answer: Answer, currency: str) -> dict[str, Any]:
    """The contract's answer; amounts are decimal strings of the currency, null where no budget applies."""
    line = answer.budget
    return {
        "allowed": answer.allowed,
        "reason": answer.reason,
        "budget": None if line is None else str(line.amount),
        "spent": None if line is None else str(line.spent),
        "remaining": None if line is None else str(line.amount - line.spent),
        "as_of": None if line is None else line.as_of.isoformat(),
        "held": None if line is None else str(answer.reserved),
        "name": None if line is None else line.name,
        "period": None if line is None else line.period,
        "team": answer.team,
        "currency": currency,
        "reservation": None if answer.reservation is None else _shown(answer.reservation),
        "actions": [
            {"action": asked.action, "from_percent": asked.percent, "tokens_per_minute": asked.tokens_per_minute}
            for asked in answer.actions
        ],
    }


def _shown(made: Reservation) -> dict[str, str]:
    return {"id": made.id, "amount": str(made.amount), "until": made.until.isoformat()}
