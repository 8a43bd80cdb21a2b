"""Delivery from the spool to the platform: in order, until acknowledged, through outages of any length.

A body leaves the spool only when the platform itself answered 2xx, which means durable, and its answer accounts for every
record of the body. Every other answer keeps the body, also a 200 or 202 of a proxy or queue in between: the platform knows
records by their keys, so sending again is harmless, while dropping would be silent. A body that the platform refuses for
good blocks the queue and logs errors; its agent's watermark stops, so the platform sees a gap and not a zero.
"""

import gzip
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

import httpx
import msgspec

from metering.command_line import token_of
from metering.records import LATER_FIELDS
from metering.spool import JSON, WATERMARKS, Parcel, Spool, open_state

log = logging.getLogger(__name__)
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 60.0
REFUSED_WAIT_S: Final = 300.0
LONGEST_RETRY_AFTER_S: Final = 600.0
HINDERED_WAIT_S: Final = 5.0
COMPRESS_FROM_BYTES: Final = 1024
TEMPORARY: Final = frozenset({408, 421, 425, 429, 500, 502, 503, 504, 507, 509, 598, 599})
OF_THE_WHOLE: Final = ("watermark", "watched_since", "unwatched", "filled")
LISTS: Final = ("allocations", "nodes")
ALLOCATIONS: Final = "usage/gpu-allocations"
FIELDS_ASKED_EVERY_S: Final = 600.0
Item = TypeVar("Item")
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])
_envelope: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Outcome(Enum):
    """Outcomes of one attempt."""

    EMPTY = "nothing to deliver"
    DELIVERED = "acknowledged"
    TEMPORARY = "the platform cannot be reached or cannot take it now"
    REFUSED = "the platform refuses it: somebody has to look"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt at a delivery: its outcome, detail in words, and the wait before the next attempt (seconds)."""

    outcome: Outcome
    detail: str = ""
    wait_s: float = 0.0


Count = Annotated[int, msgspec.Meta(ge=0)]


class Receipt(msgspec.Struct, frozen=True):
    """Answer of the platform to a body: counts of records by outcome. `pending`: durable, and on their way into a store."""

    accepted: Count
    duplicates: Count
    conflicts: Count
    rejected: list[dict[str, Any]]
    pending: Count = 0

    @property
    def records(self) -> int:
        """Return the number of records that the answer accounts for."""
        return self.accepted + self.duplicates + self.conflicts + len(self.rejected) + self.pending


class Release(msgspec.Struct, frozen=True):
    """Answer of `GET version`: the optional fields that the release knows; an older release names none."""

    version: str
    optional_fields: list[str] = []


_receipts: Final = msgspec.json.Decoder(Receipt)
_release: Final = msgspec.json.Decoder(Release)


class _RefusedError(Exception):
    """Answer that the same body will get again."""


class _TemporaryError(Exception):
    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Delivery:
    """Delivery of bodies from a spool to the endpoints below `endpoint`/api/v1/.

    `endpoint`: address of the platform, with or without /api/v1; `token`: its bearer token, or a function that reads it
    anew, so that a renewed token needs no restart; `random_source` spreads the waits of many agents.
    """

    def __init__(
        self,
        spool: Spool,
        *,
        endpoint: str,
        token: str | Callable[[], str],
        client: httpx.Client | None = None,
        random_source: random.Random | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._spool = spool
        self._base = endpoint.rstrip("/").removesuffix("/api/v1") + "/api/v1/"
        self._token = token if callable(token) else lambda: token
        self._client = client or httpx.Client(timeout=httpx.Timeout(30, connect=10))
        self._random = random_source or random.Random()  # noqa: S311  (spreads waits, guards nothing)
        self._now = now
        self._failures = 0
        self._known_fields: tuple[float, frozenset[str]] | None = None
        self.rejected_records = 0
        self.last_error = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP client."""
        self._client.close()

    def run_once(self) -> Attempt:
        """Try to deliver the oldest body."""
        parcel = self._spool.oldest()
        if parcel is None:
            return Attempt(Outcome.EMPTY)
        try:
            self._send(parcel, self._understood(parcel))
        except _TemporaryError as error:
            return self._failed(parcel, Outcome.TEMPORARY, str(error), error.retry_after_s)
        except _RefusedError as error:
            return self._failed(parcel, Outcome.REFUSED, str(error), None)
        self._spool.acknowledge(parcel.id)
        self._failures = 0
        self.last_error = ""
        return Attempt(Outcome.DELIVERED)

    def run(self, stop: threading.Event, *, idle_s: float = 1.0) -> None:
        """Deliver until `stop` is set, looking for new bodies every `idle_s` seconds."""
        while not stop.is_set():
            attempt = self.run_once()
            if attempt.outcome is not Outcome.DELIVERED:
                stop.wait(attempt.wait_s or idle_s)

    def flush(self, *, seconds: float) -> bool:
        """Deliver waiting bodies for at most `seconds` (on shutdown); return True if none is left."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            attempt = self.run_once()
            if attempt.outcome is Outcome.EMPTY:
                return True
            if attempt.outcome is not Outcome.DELIVERED:
                time.sleep(min(attempt.wait_s, left))
        return self._spool.oldest() is None

    def _understood(self, parcel: Parcel) -> bytes:
        """Return the body without fields of allocations that the platform's release would refuse.

        Raises _TemporaryError, _RefusedError where the platform does not say which fields it knows.
        """
        if parcel.door != ALLOCATIONS or not any(f'"{name}":'.encode() in parcel.body for name in LATER_FIELDS):
            return parcel.body
        unknown = frozenset(LATER_FIELDS) - self._fields_of_platform()
        return without_fields(parcel.body, unknown) if unknown else parcel.body

    def _fields_of_platform(self) -> frozenset[str]:
        """Return LATER_FIELDS that the platform knows; asked again every FIELDS_ASKED_EVERY_S, for upgrades."""
        if self._known_fields and time.monotonic() - self._known_fields[0] < FIELDS_ASKED_EVERY_S:
            return self._known_fields[1]
        try:
            response = self._client.get(self._base + "version", headers={"Authorization": f"Bearer {self._token()}"})
        except httpx.TransportError as error:
            raise _TemporaryError(f"{type(error).__name__}: {error}") from error
        if response.status_code in TEMPORARY:
            raise _TemporaryError(_said(response), self._retry_after(response))
        if not response.is_success and response.status_code != HTTPStatus.NOT_FOUND:
            raise _RefusedError(_said(response))
        try:
            fields = frozenset(_release.decode(response.content).optional_fields if response.is_success else ())
        except msgspec.DecodeError as error:
            raise _not_acknowledged(response, str(error)) from error
        if missing := [name for name in LATER_FIELDS if name not in fields]:
            log.warning("the platform is of an older release: allocations go without %s", ", ".join(missing))
        self._known_fields = time.monotonic(), fields
        return fields

    def _send(self, parcel: Parcel, body: bytes) -> None:
        response = self._post(parcel, body)
        if response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            try:
                first, second = halves(body)
            except (UnsplittableError, msgspec.DecodeError) as error:
                raise _RefusedError(f"{_said(response)}; {error}") from error
            # If the second half fails, both are sent again: the platform knows the first one's records by their keys.
            self._send(parcel, first)
            self._send(parcel, second)
            return
        if response.status_code in TEMPORARY:
            raise _TemporaryError(_said(response), self._retry_after(response))
        if not response.is_success:
            raise _RefusedError(_said(response))
        # Only 204 counts for a watermark: a proxy that answers 200 must not make the agent drop it.
        if parcel.door == WATERMARKS:
            if response.status_code != HTTPStatus.NO_CONTENT:
                raise _not_acknowledged(response, "a watermark is acknowledged with 204")
            return
        self._note_rejected(parcel, _receipt(response, body))

    def _post(self, parcel: Parcel, body: bytes) -> httpx.Response:
        headers = {"Content-Type": JSON, "Authorization": f"Bearer {self._token()}"}
        if len(body) >= COMPRESS_FROM_BYTES:
            body = gzip.compress(body, compresslevel=3, mtime=0)
            headers["Content-Encoding"] = "gzip"
        try:
            return self._client.post(self._base + parcel.door, content=body, headers=headers)
        except httpx.TransportError as error:
            raise _TemporaryError(f"{type(error).__name__}: {error}") from error

    def _note_rejected(self, parcel: Parcel, receipt: Receipt) -> None:
        """Count and log records that the platform put into quarantine, where they are safe."""
        if rejected := receipt.rejected:
            self.rejected_records += len(rejected)
            log.error("%s: the platform put %d records into quarantine, first: %s", parcel.door, len(rejected), rejected[0])

    def _failed(self, parcel: Parcel, outcome: Outcome, detail: str, retry_after_s: float | None) -> Attempt:
        self._failures += 1
        self.last_error = f"{parcel.door}: {detail}"
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures, 10))
        wait_s = longest * self._random.uniform(0.5, 1.0)
        if outcome is Outcome.REFUSED:
            wait_s = min(REFUSED_WAIT_S, wait_s * 5)
        if retry_after_s is not None:
            wait_s = max(wait_s, min(retry_after_s, LONGEST_RETRY_AFTER_S))
        level = logging.ERROR if outcome is Outcome.REFUSED or self._failures >= 5 else logging.WARNING
        log.log(
            level, "%s: %s (%s); %d bytes are waiting since %s, next attempt in %.1f s", parcel.door, outcome.value, detail,
            self._spool.bytes, datetime.fromtimestamp(parcel.put_at, UTC).isoformat(timespec="seconds"), wait_s,
        )  # fmt: skip
        return Attempt(outcome, detail, wait_s)

    def _retry_after(self, response: httpx.Response) -> float | None:
        """Return the seconds of a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3)."""
        value = response.headers.get("Retry-After", "").strip()
        if value.isdigit():
            return float(value)
        try:
            return max(0.0, (parsedate_to_datetime(value) - self._now()).total_seconds()) if value else None
        except (ValueError, TypeError):
            return None


def _receipt(response: httpx.Response, body: bytes) -> Receipt:
    """Return the receipt for this body.  Raises _TemporaryError for an answer that the platform never gives."""
    if response.status_code != HTTPStatus.OK:
        raise _not_acknowledged(response, "records are acknowledged with 200")
    try:
        receipt = _receipts.decode(response.content)
    except msgspec.DecodeError as error:
        raise _not_acknowledged(response, str(error)) from error
    try:
        sent = len(_records(body))
    except UnsplittableError:
        sent = 1
    if receipt.records != sent:
        raise _not_acknowledged(response, f"it accounts for {receipt.records} records, {sent} were sent")
    return receipt


def _not_acknowledged(response: httpx.Response, why: str) -> _TemporaryError:
    return _TemporaryError(f"{_said(response)}; is this an answer of the platform? {why}")


def _said(response: httpx.Response) -> str:
    text = response.text[:500].replace("\n", " ")
    return f"{response.status_code} {response.reason_phrase}: {text}"


class DeliveryThread:
    """Thread that delivers a spool on its own connection until `finish`; `last_error` is then the last hindrance.

    As a context it ends with the block, at once unless the block has finished it.
    """

    def __init__(self, state: Path, *, endpoint: str, token_file: Path) -> None:
        self._state = state
        self._endpoint = endpoint
        self._token_file = token_file
        self._stop = threading.Event()
        self._flush_s = 0.0
        self._delivered = False
        self.last_error = ""
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.finish(0)

    def finish(self, seconds: float) -> bool:
        """Deliver what is left for at most `seconds`; return True if nothing is left."""
        self._flush_s = seconds
        self._stop.set()
        self._thread.join()
        return self._delivered

    def _run(self) -> None:
        with (
            closing(open_state(self._state)) as connection,
            Delivery(Spool(connection), endpoint=self._endpoint, token=token_of(self._token_file)) as delivery,
        ):
            while not self._stop.is_set():
                self._until_hindered(lambda: delivery.run(self._stop, idle_s=0.2))
            self._until_hindered(lambda: self._flush(delivery))

    def _flush(self, delivery: Delivery) -> None:
        self._delivered = delivery.flush(seconds=self._flush_s)
        self.last_error = delivery.last_error

    def _until_hindered(self, deliver: Callable[[], None]) -> None:
        """Run `deliver`; log an unreadable token file or disk and wait, so that the caller can try again."""
        try:
            deliver()
        except (OSError, sqlite3.Error) as error:
            self.last_error = str(error)
            log.error("delivery: %s; trying again in %s s", error, HINDERED_WAIT_S)
            self._stop.wait(HINDERED_WAIT_S)


class UnsplittableError(Exception):
    """Error for a body that holds one record, or no list of records."""


def halves(body: bytes) -> tuple[bytes, bytes]:
    """Split the records of a body into two bodies, in order: arrays, or envelopes with a list.

    A watermark, and the reports about the time before it, go with the second half only: it is sent last and covers both.

    Raises UnsplittableError, msgspec.DecodeError.
    """
    envelope, field = _opened(body)
    first, second = _cut(_records(body))
    if envelope is None:
        return msgspec.json.encode(first), msgspec.json.encode(second)
    without_watermark = {name: value for name, value in envelope.items() if name not in OF_THE_WHOLE}
    return (
        msgspec.json.encode({**without_watermark, field: first}),
        msgspec.json.encode({**envelope, field: second}),
    )


def without_fields(body: bytes, names: Collection[str]) -> bytes:
    """Return the body with its records stripped of the named fields.  Raises UnsplittableError, msgspec.DecodeError."""
    envelope, field = _opened(body)
    kept = [
        {name: value for name, value in _envelope.decode(record).items() if name not in names} for record in _records(body)
    ]
    return msgspec.json.encode(kept if envelope is None else {**envelope, field: kept})


def _records(body: bytes) -> list[msgspec.Raw]:
    """Return the records of a body.  Raises UnsplittableError where it has no list of them, msgspec.DecodeError."""
    envelope, field = _opened(body)
    return _array.decode(body if envelope is None else envelope[field])


def _opened(body: bytes) -> tuple[dict[str, msgspec.Raw] | None, str]:
    """Return the envelope of a body and the field that has its records; (None, "") for an array of records.

    Raises UnsplittableError, msgspec.DecodeError.
    """
    if body.lstrip().startswith(b"["):
        return None, ""
    envelope = _envelope.decode(body)
    field = next((name for name in LISTS if name in envelope), None)
    if field is None:
        raise UnsplittableError("the body is one record")
    return envelope, field


def _cut(items: list[Item]) -> tuple[list[Item], list[Item]]:
    if len(items) < 2:
        raise UnsplittableError("the body holds a single record")
    middle = len(items) // 2
    return items[:middle], items[middle:]
