"""Decoding and validation of a body of token records: the same for Django and `gateway_requests`."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from billing.api.admission import Busy
from billing.api.bodies import MAX_RECORDS, raw_records
from billing.usage.services import Reporter, token_batch
from billing.usage.services.token_batch import TokenBatch
from billing.usage.store.checks import are_named, says_nothing_twice
from billing.usage.store.columns import ReportedColumns, reported_columns
from billing.usage.store.dimensions import remembered_dimensions
from metering.record_checks import RecordError
from metering.records import TokenUsage, UncheckedTokenUsage, decode_batch

LARGE_BYTES: Final = 32_768
LARGE_WAIT_SECONDS: Final = 15
AT_ONCE_BYTES: Final = 16_384
"""Size from which rules between fields are checked for all records at once."""

_large = threading.Lock()
_array = msgspec.json.Decoder(list[TokenUsage])
_line = msgspec.json.Decoder(TokenUsage)
_unchecked_array = msgspec.json.Decoder(list[UncheckedTokenUsage])
_unchecked_line = msgspec.json.Decoder(UncheckedTokenUsage)


def report_read(body: bytes, reporter: Reporter) -> TokenBatch:
    """Decode and validate a body; a large one waits until no other is being decoded.  Raises APIException."""
    if len(body) <= LARGE_BYTES:
        return report_read_now(body, reporter)
    with _turn():
        return report_read_now(body, reporter)


def report_read_now(body: bytes, reporter: Reporter) -> TokenBatch:
    """Decode and validate a body without waiting, for callers that must not block.  Raises APIException.

    All records are decoded at once; only if one of them is invalid, they are decoded one by one to find it.
    """
    now = datetime.now(UTC)
    good = _all_good(body)
    if good is not None:
        cut: list[Sequence[Any]] = []

        def raw_at(index: int) -> bytes:
            # only conflicts and records for quarantine need the raw text, so it is cut on demand
            if not cut:
                cut.append(raw_records(body))
            return bytes(cut[0][index])

        records, columns = good
        return token_batch(records=records, raw_at=raw_at, reporter=reporter, now=now, columns=columns)
    raws = raw_records(body)
    batch = decode_batch(TokenUsage, raws)
    return token_batch(
        records=[record for _, record in batch.records], places=[index for index, _ in batch.records],
        rejected=batch.rejected, raw_at=lambda index: bytes(raws[index]), reporter=reporter, now=now,
    )  # fmt: skip


@contextmanager
def _turn() -> Iterator[None]:
    """Let one large body be decoded at a time; other cores are for other processes.  Raises Busy.

    Threads that alternate at Python's one lock were measured to need 40 % more of the processor for the same records.
    While the database writes one group, the next one is decoded.
    """
    if not _large.acquire(timeout=LARGE_WAIT_SECONDS):
        raise Busy(f"no large report was decoded for {LARGE_WAIT_SECONDS} s: send again later")
    try:
        yield
    finally:
        _large.release()


def _all_good(body: bytes) -> tuple[Sequence[Any], ReportedColumns | None] | None:
    """Return the records if every one of them is valid, with their columns if they are many; else None."""
    if b"\\" in body and b"\\u0000" in body:  # a NUL, maybe; hardly any body has escapes
        return None
    together = len(body) >= AT_ONCE_BYTES
    array, line = (_unchecked_array, _unchecked_line) if together else (_array, _line)
    try:
        records: Sequence[Any] = array.decode(body) if body.lstrip()[:1] == b"[" else line.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordError):
        return None
    if not 0 < len(records) <= MAX_RECORDS or not says_nothing_twice(body, records):
        return None
    if not together:
        return (records, None) if are_named(records) else None
    columns = reported_columns(records, remembered_dimensions())
    return (records, columns) if columns.keep_the_rules() else None
