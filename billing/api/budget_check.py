"""`budgets/check` and `budgets/reservations` in a process of their own, so that no load elsewhere slows them down.

Answers come from memory, in the thread that reads the question; a process beside it follows the database. One such process
serves an installation, since it alone knows what is reserved. The web process passes the same addresses on to it.
"""

import asyncio
import gc
import logging
import secrets
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from billing.api.bodies import Answer as HttpAnswer
from billing.api.bodies import problem_answer
from billing.api.report_connection import KnownHead, Receive, Request, Send, lifespan
from billing.budgets.counter import LONGEST_HOLD_SECONDS, Answer, Ask, Counter, Grant, Reservation
from billing.budgets.follower import Landed, Whole
from billing.budgets.reservation_log import ReservationLog
from billing.budgets.snapshot import SCOPE
from billing.tenancy.tokens import token_digest
from metering.token_keys import token_key

PREFIX: Final = "/api/v1/budgets/"
PASS_EVERY_SECONDS: Final = 0.2
RESTART_SECONDS: Final = 0.5
SWITCH_SECONDS: Final = 0.000_5
"""How long an answer waits at most for the thread that takes over what the follower sends; Python's own is ten times it."""
MOST_BODY: Final = 16 * 1024
LONGEST_TEXT: Final = 512
MOST_TOKENS: Final = 10**9
MOST_AMOUNT: Final = Decimal(10**12)

log = logging.getLogger(__name__)
encode = msgspec.json.Encoder().encode


class Refused(Exception):
    """An answer that is an error: status and what to say."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class BudgetCheck:
    """The application, to be served with `ReportConnection`.

    `directory` keeps its holds; the follower runs in `project` with `environment`.
    """

    most_bytes: Final = 8 * MOST_BODY

    def __init__(self, directory: Path, *, project: Path, environment: Mapping[str, str]) -> None:
        self._directory, self._project, self._environment = directory, project, environment
        self._clock = partial(datetime.now, UTC)
        self.heads = dict[bytes, KnownHead]()
        self._wanted: deque[bytes] = deque()
        self._holds: ReservationLog | None = None
        self._counter: Counter | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await lifespan(self, scope, receive, send)

    def crowded(self, connections: int) -> HttpAnswer | None:
        """There is room for everybody."""

    def opened(self, request: Request) -> None:
        """Refuse a body that names a length that is too large, before it is sent if its client asks first."""
        declared = request.META.get("CONTENT_LENGTH", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 9 or int(declared) > MOST_BODY):
            request.refusal = _refused(TOO_LARGE)

    def grown(self, request: Request) -> None:
        """The same of a body that names no length."""
        if request.size > MOST_BODY:
            request.refusal = _refused(TOO_LARGE)

    def closed(self, request: Request) -> None:
        """Nothing was counted in."""

    def take(self, request: Request) -> None:
        """Answer at once: whatever that takes is in memory."""
        try:
            status, value = self._answer(request)
            body = b"" if value is None else encode(value)
            answer: HttpAnswer = (status, "application/json", body, _ALSO.get(status, []))
        except Refused as refused:
            answer = _refused(refused)
        except Exception:  # the edge: whatever it is, who asked is told
            log.exception("a question about a budget could not be answered")
            answer = _refused(Refused(500, "the log of the budget check says why"))
        request.connection.answer(request, answer)

    def start(self) -> None:
        """Take over earlier holds and begin to follow the database."""
        now = self._clock()
        journal = self._holds = ReservationLog(self._directory, now)
        self._counter = Counter(
            remember=lambda hold: journal.remember(hold, self._clock()), forget=journal.forget,
            new_id=lambda: secrets.token_hex(12), waits_for=self._wanted.append,
        )  # fmt: skip
        self._counter.restore(journal.read(now))
        self._stop.clear()
        self._thread = threading.Thread(target=self._follow, args=(self._counter,), name="budget-counters", daemon=True)
        self._thread.start()
        gc.collect()
        gc.freeze()  # what lives as long as the process is not looked at again
        sys.setswitchinterval(SWITCH_SECONDS)

    async def stop(self) -> None:
        """Stop following; holds stay in the journal."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        if self._holds is not None:
            self._holds.close()

    def _follow(self, counter: Counter) -> None:
        """Keep a follower running; one that ends is started again."""
        while not self._stop.is_set():
            ours, theirs = Pipe()
            with ours, theirs:
                argv = [sys.executable, "-m", "billing.settings.budget_follower", str(theirs.fileno())]
                process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], cwd=self._project, env=self._environment)  # noqa: S603
                theirs.close()
                try:
                    self._take(counter, ours)
                except (EOFError, ConnectionResetError, BrokenPipeError):
                    log.warning("the follower of the database ended; starting it again")
            process.terminate()
            process.wait()
            self._stop.wait(RESTART_SECONDS)

    def _take(self, counter: Counter, follower: "Connection[Any, Any]") -> None:
        """Pass names of records to the follower and take over what it sends."""
        follower.send(counter.waiting_keys())
        while not self._stop.is_set():
            wanted = [self._wanted.popleft() for _ in range(len(self._wanted))]
            if wanted:
                follower.send(wanted)
            if not follower.poll(PASS_EVERY_SECONDS):
                continue
            news = follower.recv()
            snapshot = counter.snapshot
            if isinstance(news, Landed):
                counter.landed(news.keys, news.generation)
            elif isinstance(news, Whole):
                counter.replace(news.snapshot, self._clock())
            elif snapshot is not None:
                counter.replace(snapshot.counted(news.budgets), self._clock())

    def _answer(self, request: Request) -> tuple[int, Any]:
        address, _, query = request.path.decode("latin-1").partition("?")
        method, path = request.method.decode(), unquote(address)
        if path in ("/healthz", "/readyz"):
            ready = self._counter is not None and self._counter.snapshot is not None
            return (200, {"status": "ok"}) if ready or path == "/healthz" else (503, {"status": "no counters yet"})
        action = path.removeprefix(PREFIX)
        if not path.startswith(PREFIX) or action.partition("/")[0] not in ("check", "reservations"):
            raise Refused(404, f"no door at {path[:200]}")
        counter, grant = self._authorised(request)
        if action == "check" and method in ("GET", "HEAD"):
            fields = dict(parse_qsl(query, keep_blank_values=True))
            return 200, self._check(counter, grant, fields)
        if action == "reservations" and method == "POST":
            return 200, self._check(counter, grant, _fields(request.read(MOST_BODY)))
        if action.startswith("reservations/") and method == "DELETE":
            if not counter.release(action.removeprefix("reservations/")):
                raise Refused(404, "no such reservation: it has ended")
            return 204, None
        raise Refused(405, f"{method} is not for {path[:200]}")

    def _authorised(self, request: Request) -> tuple[Counter, Grant]:
        counter = self._counter
        if counter is None or counter.snapshot is None:
            raise Refused(503, "the counters are being read: ask again in a second")
        kind, _, presented = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        grant = counter.snapshot.grants.get(token_digest(presented.strip())) if kind.lower() == "bearer" else None
        if grant is None or (grant.expires_at is not None and grant.expires_at <= self._clock()):
            raise Refused(401, f"a valid token with the scope {SCOPE} is needed; a new one works after a few seconds")
        return counter, grant

    def _check(self, counter: Counter, grant: Grant, fields: Mapping[str, Any]) -> dict[str, Any]:
        ask, hold = read_ask(fields)
        if grant.source and ask.source != grant.source:
            raise Refused(403, f"source {ask.source!r}: this token may ask for {grant.source!r} only")
        now = self._clock()
        if grant.teams is not None and counter.snapshot is not None:
            owner = counter.snapshot.consumers.owner(ask.source, ask.consumer, now)
            if owner is None or owner.team not in grant.teams:
                raise Refused(404, "there is nothing here that you may see")
        answer = counter.check(ask, now, hold=hold)
        if answer is None or counter.snapshot is None:
            raise Refused(503, "the counters are being read: ask again in a second")
        return as_dict(answer, counter.snapshot.currency)


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
        _count(fields, "seconds", LONGEST_HOLD_SECONDS),
    )  # fmt: skip
    return ask, amount is None or amount > 0


def _text(fields: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    value = fields.get(name) or ""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or "\0" in value:
        raise Refused(400, f"{name}: must be text of at most {LONGEST_TEXT} characters without NUL")
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
        raise Refused(400, f"{name}: must be a decimal string from 0 to {MOST_AMOUNT} with at most 4 decimals")
    return value


def _count(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) > most:
        raise Refused(400, f"{name}: must be a whole number from 0 to {most}")
    return int(text)


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Refused(400, "the body must be a JSON object")
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
        "held": None if line is None else str(answer.held),
        "name": None if line is None else line.name,
        "period": None if line is None else line.period,
        "team": answer.team,
        "currency": currency,
        "reservation": None if answer.hold is None else _shown(answer.hold),
        "actions": [
            {"action": asked.action, "from_percent": asked.percent, "tokens_per_minute": asked.tokens_per_minute}
            for asked in answer.actions
        ],
    }


def _shown(hold: Reservation) -> dict[str, str]:
    return {"id": hold.id, "amount": str(hold.amount), "until": hold.until.isoformat()}


def _refused(refused: Refused) -> HttpAnswer:
    return problem_answer(refused.status, refused.detail, *_ALSO.get(refused.status, []))


_ALSO: Final = {401: [("WWW-Authenticate", "Bearer")], 503: [("Retry-After", "1")]}
TOO_LARGE: Final = Refused(413, f"the body is larger than {MOST_BODY} bytes")
