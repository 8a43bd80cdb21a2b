"""Budget check of LiteLLM: asks Suanpan before a request goes to a model whether it may spend (`budgets/authorize`).

    callbacks: ["metering.gateways.litellm_callback.reporter", "metering.gateways.litellm_budget.gate"]

A request that a budget forbids is answered with 429 and `Retry-After`; all others pass. The possible cost of the request is
reserved under the id that the callback gives its record, so that the reservation ends with the record; a request that fails
ends it at once. Without the callback a reservation lasts a minute.

Settings, all from the environment: SUANPAN_BUDGET_AWAY (`open` or `closed`: whether requests pass while the platform does
not answer), SUANPAN_BUDGET_SECONDS (how long to wait for an answer, default 1), and the callback's SUANPAN_ENDPOINT,
SUANPAN_SOURCE and SUANPAN_CONSUMER. The token, with scope `budgets:read`, is in SUANPAN_BUDGET_TOKEN_FILE or
SUANPAN_BUDGET_TOKEN; the default is the callback's token.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from metering.gateways import litellm
from metering.gateways.litellm_callback import call_details, named_call
from metering.record_checks import RecordError

log = logging.getLogger(__name__)
MARK: Final = "suanpan_reservation"
QUESTION: Final = "/api/v1/budgets/authorize"
RESERVATIONS: Final = "/api/v1/budgets/reservations"
METADATA: Final = ("litellm_metadata", "metadata")
AWAY_WAIT_S: Final = 5
MOST_TOKENS: Final = 10**9
PAYER_FIELDS: Final = {"hash": "api_key"}
"""Names in LiteLLM's key object that differ from those of the payload's `user_api_key_*` fields."""


class Settings(msgspec.Struct, frozen=True):
    """Settings from the environment."""

    endpoint: str
    token: str
    token_file: str
    source: str
    consumer: tuple[str, ...]
    is_open: bool
    seconds: float

    def read_token(self) -> str:
        """Read the bearer token anew each time, so that a renewed one needs no restart."""
        return Path(self.token_file).read_text(encoding="utf-8").strip() if self.token_file else self.token


class Held(msgspec.Struct, frozen=True):
    """Reservation of one call. It is kept in metadata that a request can add to, but JSON cannot make this type."""

    id: str


class Refusal(msgspec.Struct, frozen=True):
    """Refusal of a request: status, message to its client, and seconds until it may ask again."""

    status: int
    detail: str
    wait: int


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read settings from an environment.  Raises RecordError that names the variable and what to do."""
    away, seconds = environment.get("SUANPAN_BUDGET_AWAY", ""), environment.get("SUANPAN_BUDGET_SECONDS") or "1"
    if away not in ("open", "closed"):
        raise RecordError(
            f"SUANPAN_BUDGET_AWAY {away!r} is neither open nor closed: say whether requests pass while nobody answers"
        )
    if not seconds.replace(".", "", 1).isdecimal() or not 0 < float(seconds) <= 60:
        raise RecordError(f"SUANPAN_BUDGET_SECONDS {seconds!r} must be a number above 0 and at most 60")
    own = environment.get("SUANPAN_BUDGET_TOKEN", ""), environment.get("SUANPAN_BUDGET_TOKEN_FILE", "")
    reporting = environment.get("SUANPAN_TOKEN", ""), environment.get("SUANPAN_TOKEN_FILE", "")
    token, token_file = own if any(own) else reporting
    endpoint = environment.get("SUANPAN_ENDPOINT", "").rstrip("/")
    if not endpoint or not (token or token_file):
        raise RecordError("SUANPAN_ENDPOINT or SUANPAN_BUDGET_TOKEN_FILE is not set: whom to ask, and with which token")
    return Settings(
        endpoint, token, token_file, environment.get("SUANPAN_SOURCE") or "litellm",
        litellm.read_consumer(environment.get("SUANPAN_CONSUMER", "")), away == "open", float(seconds),
    )  # fmt: skip


class BudgetGate:
    """Client of the budget endpoints, without knowledge of hooks. One for each process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client, self._process = self._connected(), os.getpid()

    async def ask(self, fields: Mapping[str, str]) -> Held | Refusal | None:
        """Return the reservation of a request that passes, None if nothing is reserved, or why it does not pass."""
        headers = [(f"X-Suanpan-{name}".encode(), value.encode()) for name, value in fields.items()]
        try:
            answer = await self._request("GET", QUESTION, headers)
        except (httpx.HTTPError, OSError) as error:
            return self._away(f"{type(error).__name__} {error}")
        if answer.status_code == httpx.codes.NO_CONTENT:
            reservation = answer.headers.get("X-Suanpan-Reservation")
            return Held(reservation) if reservation else None
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS and "X-Budget-Reason" in answer.headers:
            return Refusal(429, answer.json()["detail"], int(answer.headers["Retry-After"]))
        return self._away(f"{answer.status_code} {answer.text[:300]}")

    async def release(self, held: Held) -> None:
        """End the reservation of a failed request; if that fails, the reservation ends with its time."""
        try:
            await self._request("DELETE", f"{RESERVATIONS}/{held.id}", [])
        except (httpx.HTTPError, OSError) as error:
            log.warning("a reservation of a failed request lasts until its time is over: %s", error)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def question(self, key: Any, data: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the fields to ask about a request with this key; None if it names no payer, which its record will show."""
        payers = (getattr(key, PAYER_FIELDS.get(name, name), None) for name in self._settings.consumer)
        consumer = next((str(payer) for payer in payers if payer), None)
        if consumer is None:
            return None
        fields = {"Source": self._settings.source, "Consumer": consumer, "Model": str(data.get("model") or "")}
        call = named_call(call_details(data) or {})
        if call is not None and not call.models:
            fields["Id"] = call.id
        most = data.get("max_completion_tokens") or data.get("max_tokens")
        if isinstance(most, int) and 0 < most <= MOST_TOKENS:
            fields["Output-Tokens"] = str(int(most))
        return fields

    async def _request(self, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> httpx.Response:
        """Send a request.  Raises httpx.HTTPError, or OSError if the token cannot be read."""
        if os.getpid() != self._process:  # a worker that was forked has connections of its own
            self._client, self._process = self._connected(), os.getpid()
        token = f"Bearer {self._settings.read_token()}".encode()
        return await self._client.request(method, path, headers=[*headers, (b"Authorization", token)])

    def _connected(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._settings.endpoint, timeout=self._settings.seconds)

    def _away(self, why: str) -> Refusal | None:
        """Decide by the setting what happens to a request without an answer about its budget."""
        if self._settings.is_open:
            log.error("a request passes without an answer about its budget: %s", why)
            return None
        log.error("a request is refused without an answer about its budget: %s", why)
        return Refusal(503, "nobody can say whether there is budget left: ask again", AWAY_WAIT_S)


class Hooks:
    """Methods that LiteLLM calls."""

    gate: BudgetGate

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str) -> None:
        """Ask about the request, which the callback, listed first, has named.  Raises fastapi's HTTPException."""
        fields = self.gate.question(user_api_key_dict, data)
        if fields is None:
            return
        found = await self.gate.ask(fields)
        if isinstance(found, Refusal):
            raise http_error(found)
        if found is not None:
            for metadata in _metadata(data):
                metadata[MARK] = found

    async def async_post_call_failure_hook(
        self, request_data: dict[str, Any], original_exception: Exception, user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:  # fmt: skip
        """End the reservation of a failed request, which will not be in the ledger."""
        held = {metadata[MARK] for metadata in _metadata(request_data) if isinstance(metadata.get(MARK), Held)}
        for reservation in held:
            await self.gate.release(reservation)


def _metadata(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return LiteLLM's notes about a request; its logging object is gone from the request when a failure is reported."""
    return [noted for name in METADATA if isinstance(noted := data.get(name), dict)]


def http_error(refusal: Refusal) -> Exception:
    """Return the exception with which LiteLLM answers its client."""
    from fastapi import HTTPException  # only a proxy has it

    error: Exception = HTTPException(refusal.status, {"error": refusal.detail}, {"Retry-After": str(refusal.wait)})
    return error


def make_gate(environment: Mapping[str, str]) -> Any:
    """Return an instance of LiteLLM's CustomLogger with our hooks in its own class.  Raises RecordError."""
    from litellm.integrations.custom_logger import CustomLogger  # only a proxy has it

    names = [name for name in vars(Hooks) if not name.startswith("__")]
    gate: Any = type("SuanpanGate", (CustomLogger,), {name: vars(Hooks)[name] for name in names})()
    gate.gate = BudgetGate(read_settings(environment))
    return gate


def __getattr__(name: str) -> Any:
    """Make `gate` once, when LiteLLM's configuration asks for it."""
    if name != "gate":
        raise AttributeError(name)
    globals()["gate"] = made = make_gate(os.environ)
    return made
