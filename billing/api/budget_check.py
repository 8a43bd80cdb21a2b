"""Questions and answers of `budgets/check`, `budgets/reservations` and `budgets/authorize`, for Django and ASGI.

Any number of processes may answer: reservations are in Valkey, and all else is read from the database every few seconds.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from http import HTTPStatus
from math import ceil
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from django.utils import timezone
from rest_framework.exceptions import APIException

from billing.api.bodies import Answer as HttpAnswer
from billing.api.bodies import TooLarge, problem_answer
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
"""Fields of a question. Gateways may add their own, which are ignored."""
AUTHORIZE: Final = f"{PREFIX}authorize"
QUESTION_HEADERS: Final = {
    f"HTTP_X_SUANPAN_{name.upper()}": (name, f"X-Suanpan-{name.replace('_', '-').title()}") for name in QUESTION
}
"""Headers that `budgets/authorize` reads: name in a request's META -> field of the question, name of the header."""
GATEWAY_AUTHORIZATION: Final = "HTTP_X_SUANPAN_AUTHORIZATION"
"""Header with the token of a gateway that forwards its client's own Authorization."""
DENIALS: Final = {"": HTTPStatus.TOO_MANY_REQUESTS, "429": HTTPStatus.TOO_MANY_REQUESTS, "403": HTTPStatus.FORBIDDEN}
RESERVED_WAIT: Final = 5
"""Seconds after which to ask again if only reservations use up the budget."""

_current = CurrentReference()


class Refused(APIException):
    """Error response with status and detail. `wait`: seconds after which to ask again."""

    def __init__(self, status: int, detail: str, wait: int = 0) -> None:
        super().__init__(detail)
        self.status_code, self.default_detail, self.wait = status, HTTPStatus(status).phrase, wait


def budget_check(token: ApiToken, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Decide whether a request may spend, with a reservation unless `reserve` is 0.  Raises Refused."""
    answer, currency, _ = _decided(token, fields)
    return as_dict(answer, currency)


def budget_authorize(token: ApiToken, meta: Mapping[str, Any], query: str) -> HttpAnswer:
    """Answer a question in headers by the status alone, for forward-auth of gateways.

    204 allows. 429, or 403 with `deny=403`, refuses and says in `Retry-After` when to ask again.  Raises Refused.
    """
    denied = _denial(query)
    fields = _header_fields(meta)
    if token.source:
        fields.setdefault("source", token.source)
    answer, currency, now = _decided(token, fields)
    headers = [("X-Budget-Reason", answer.reason)]
    if answer.budget is not None:
        headers.append(("X-Budget-Remaining", str(answer.budget.amount - answer.budget.spent)))
    if answer.reservation is not None:
        headers.append(("X-Suanpan-Reservation", answer.reservation.id))
    line = answer.budget
    if answer.allowed or line is None:  # only a budget refuses
        return HTTPStatus.NO_CONTENT, "application/json", b"", headers
    wait, why = RESERVED_WAIT, "what it has left is reserved for requests under way"
    if answer.reason == "budget_used_up":
        wait, why = max(1, ceil((line.end - now).total_seconds())), "it is used up"
    detail = f"budget {line.name!r} of {line.period}: {why}; {line.spent} of {line.amount} {currency} are spent"
    return problem_answer(denied, detail, *headers, ("Retry-After", str(wait)))


def _denial(query: str) -> HTTPStatus:
    """Return the status of a refusal; 403 is for nginx, whose `auth_request` turns 429 into a server error.  Raises Refused.

    Other parameters are ignored: Envoy appends the client's own query to that of the address.
    """
    asked = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "deny"]
    if len(set(asked)) > 1 or (asked and asked[0] not in DENIALS):
        raise Refused(400, f"deny: {_shown_value(', '.join(asked))} must be 403 or 429")
    return DENIALS[asked[0] if asked else ""]


def _header_fields(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the question in a request's headers, which are UTF-8.  Raises Refused."""
    fields = {}
    for name, (field, header) in QUESTION_HEADERS.items():
        if value := meta.get(name, ""):
            try:
                fields[field] = str(value).encode("latin-1").decode("utf-8")
            except UnicodeError as error:
                raise Refused(400, f"{header}: {_shown_value(value)} must be UTF-8") from error
    return fields


def _decided(token: ApiToken, fields: Mapping[str, Any]) -> tuple[Answer, str, datetime]:
    """Decide a question; returns the answer, its currency, and the instant of the decision.  Raises Refused."""
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
        return check(ask, reference, reservations(), now, reserve=reserve), reference.currency, now
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
    """Return True if `budget_answer` answers this request; Django refuses every other method and address."""
    action = path.removeprefix(PREFIX)
    if is_authorization(path):
        return method in ("GET", "HEAD", "POST")
    return (method, action) in ASKED or (method == "DELETE" and action.startswith("reservations/"))


def is_authorization(path: str) -> bool:
    """Return True for `budgets/authorize`, also with the path of its client that Envoy appends."""
    return path == AUTHORIZE or path.startswith(f"{AUTHORIZE}/")


def gateway_credentials(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the headers of a `budgets/authorize` request, with the gateway's token where `token_of` reads it."""
    return {**meta, "HTTP_AUTHORIZATION": meta[GATEWAY_AUTHORIZATION]} if meta.get(GATEWAY_AUTHORIZATION) else meta


def budget_answer(
    token: ApiToken, method: str, path: str, query: str, body: bytes, meta: Mapping[str, Any]
) -> HttpAnswer:
    """Answer a request to these addresses outside Django.  Raises Refused or TooLarge."""
    if is_authorization(path):
        return budget_authorize(token, meta, query)
    action = path.removeprefix(PREFIX)
    if method == "DELETE":
        reservation_release(action.removeprefix("reservations/"))
        return HTTPStatus.NO_CONTENT, "application/json", b"", []
    return _ok(budget_check(token, read_query(query) if action == "check" else read_fields(body)))


def _ok(found: dict[str, Any]) -> HttpAnswer:
    return HTTPStatus.OK, "application/json", msgspec.json.encode(found), []


def _sees(token: ApiToken, ask: Ask, reference: Reference, now: datetime) -> bool:
    """Return True if the consumer's team is the token's or below it, and visible to the owner of the token."""
    owned = token.owner is not None and not access_of(token.owner).may(Right.READ)
    if token.team is None and not owned:
        return True
    owner = reference.consumers.owner(ask.source, ask.consumer, now)
    if owner is None or (token.team is not None and owner.team not in reference.teams.get(token.team.code, ())):
        return False
    return not owned or teams_visible_to(token.owner).filter(code=owner.team).exists()


def _unavailable() -> Refused:
    """Return the refusal while reservations are unknown; whether to continue is the gateway's policy."""
    return Refused(503, "reservations cannot be reached: ask again in a second", wait=1)


def read_ask(fields: Mapping[str, Any]) -> tuple[Ask, bool]:
    """Return the question, and True if it is to reserve.  Raises Refused with the field at fault.

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
        # a longer text is out of bounds, and would take long to parse
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
    """Return a value of a question for an error, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_query(query: str) -> Mapping[str, str]:
    """Return the question in a query.  Raises Refused."""
    fields: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in fields:
            raise Refused(400, f"{name[:40]!r} is given twice")
        fields[name] = value
    return fields


def read_fields(body: bytes) -> Mapping[str, Any]:
    """Return the question in a JSON body.  Raises Refused or TooLarge."""
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
    """Return the contract's answer; amounts are decimal strings of the currency, null if no budget applies."""
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
