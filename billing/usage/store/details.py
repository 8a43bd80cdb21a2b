"""Optional fields of token records, in their own table: a record without them has no row (ADR 0042).

Roll-ups, COPY of the ledger, ClickHouse and the digests of token counts do not use it.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import DETAIL, TOKEN_COUNTS, content_sha256
from billing.usage.scope import EpochFilter
from billing.usage.store.columns import Identities, Rows, TokenColumns
from billing.usage.store.tags import Tags, tag_set_digest, tag_sets_put, values_kept
from metering.intervals import Interval
from metering.records import DETAIL_COUNTS, DETAIL_TEXTS, DETAILS, STANDARD_TIER, Details, UncheckedTokenUsage

_KINDS: Final = {
    "key": "uuid", "time": "timestamptz", "dimension": "int", **dict.fromkeys(TOKEN_COUNTS, "bigint"),
    **dict.fromkeys(DETAIL_TEXTS, "text"), **dict.fromkeys(DETAIL_COUNTS, "bigint"), "tag_set": "int",
}  # fmt: skip
WRITE: Final = f"""INSERT INTO token_detail ({', '.join(_KINDS)}, epoch, content_sha256)
    SELECT {', '.join(f'r.{name}' for name in _KINDS)}, r.epoch, {content_sha256(DETAIL, 'r')}
    FROM (SELECT *, %s::int AS epoch
          FROM unnest({', '.join(f'%s::{kind}[]' for kind in _KINDS.values())}) AS u ({', '.join(_KINDS)})) r
    ORDER BY r.key"""
STORED: Final = f"""SELECT uuid_send(t.key), s.tags, {', '.join(f't.{name}' for name in DETAILS)}
    FROM token_detail t LEFT JOIN token_tag_set s ON s.id = t.tag_set WHERE t.key = ANY (%s::uuid[])"""
DETAIL_RECORDS: Final = """token_detail t JOIN token_dimension d ON d.id = t.dimension
    LEFT JOIN token_tag_set s ON s.id = t.tag_set"""
"""SQL of details with the names of their records, as they are archived."""
OF_WINDOW: Final = "t.time >= %(start)s AND t.time < %(end)s AND t.epoch >= %(first)s AND t.epoch < %(before)s"
CHECKSUM: Final = f"""SELECT count(*), sum(hash_record_extended(ROW(
        t.key, t.time, t.dimension, t.epoch, {', '.join(f't.{name}' for name in (*TOKEN_COUNTS, *DETAILS))}, t.tag_set), 0))
    FROM token_detail t WHERE {OF_WINDOW}"""
OF_TIERS: Final = f"""WITH rules AS (
        SELECT source, service_tier, treat_as, valid_from,
               lead(valid_from) OVER (PARTITION BY source, service_tier ORDER BY valid_from) AS until
        FROM usage_servicetierrule)
    SELECT d.source, t.service_tier, d.model, count(*), sum(t.input_tokens + t.output_tokens)::bigint
    FROM {DETAIL_RECORDS} LEFT JOIN rules r ON r.source = d.source AND r.service_tier = t.service_tier
         AND t.time >= r.valid_from AND (r.until IS NULL OR t.time < r.until)
    WHERE {OF_WINDOW} AND t.service_tier <> '{STANDARD_TIER}' AND coalesce(r.treat_as, t.service_tier) <> '{STANDARD_TIER}'
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
ALTERED: Final = f"""SELECT count(*), min(t.key::text) FROM token_detail t
    WHERE t.time >= %(start)s AND t.time < %(end)s AND t.content_sha256 <> {content_sha256(DETAIL, 't')}"""
"""SQL of the number of rows of a window that differ from their report, and the key of one."""


class StoredDetails(NamedTuple):
    """Stored details of a record: values of DETAILS, and its tags, None for a value that was not kept."""

    details: Details
    tags: Tags

    def named(self) -> dict[str, Any]:
        """Return the stated fields by name."""
        found = {name: value for name, value in zip(DETAILS, self.details, strict=True) if value is not None}
        return found | ({"tags": dict(self.tags)} if self.tags else {})


def details_write(
    columns: TokenColumns, rows: Rows, dimensions: Identities, epoch: int, limits: Mapping[tuple[str, str], int]
) -> None:
    """Insert the details of those new rows that state some, in the caller's transaction; no statement runs without any.

    `dimensions`: numbers of all rows; `limits`: distinct values kept per day, by source and tag.
    """
    stating = rows[columns.detailed[rows]]
    if not len(stating):
        return
    records = [columns.records[number] for number in columns.place[stating].tolist()]
    sets = _tag_sets(records, limits)
    counts = zip(*(record.counts for record in records), strict=True)
    details = zip(*(record.details for record in records), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(WRITE, [
            epoch, [UUID(bytes=record.key) for record in records], [record.time for record in records],
            dimensions[stating].tolist(), *map(list, counts), *map(list, details), sets,
        ])  # fmt: skip


def _tag_sets(records: Sequence[UncheckedTokenUsage], limits: Mapping[tuple[str, str], int]) -> list[int | None]:
    """Return the number of each record's tag set, None without tags."""
    if not any(record.tags for record in records):
        return [None] * len(records)
    days = [record.time.astimezone(UTC).date() for record in records]
    values = [
        (record.source, key, day, value)
        for record, day in zip(records, days, strict=True) for key, value in (record.tags or {}).items() if value is not None
    ]  # fmt: skip
    kept = values_kept(values, limits) if values else set()
    sets = [
        {key: value if (record.source, key, day, value) in kept else None for key, value in (record.tags or {}).items()}
        for record, day in zip(records, days, strict=True)
    ]  # fmt: skip
    numbers = tag_sets_put(filter(None, sets))
    return [numbers[tag_set_digest(tags)] if tags else None for tags in sets]


def details_stored(keys: Sequence[bytes]) -> dict[bytes, StoredDetails]:
    """Return the stored details of the records of these keys (`metering.token_keys`)."""
    with connection.cursor() as cursor:
        cursor.execute(STORED, [f"{{{','.join(key.hex() for key in keys)}}}"])
        return {bytes(key): StoredDetails(tuple(details), _tags(tags)) for key, tags, *details in cursor.fetchall()}


def _tags(stored: Any) -> Tags:
    return json.loads(stored) if isinstance(stored, str) else stored or {}


def details_named(keys: Sequence[bytes]) -> dict[bytes, dict[str, Any]]:
    """Return the stated details of these keys, by field name."""
    return {key: stored.named() for key, stored in details_stored(keys).items()} if keys else {}


def details_checksum(window: Interval, epochs: EpochFilter) -> Sequence[Any]:
    """Return the number of a window's records with details, and a sum of row hashes."""
    (row,) = rows_read(CHECKSUM, _asked(window, epochs))
    return row


class TierUsage(NamedTuple):
    """Requests of a model in a service tier, and the sum of their input and output tokens."""

    source: str
    service_tier: str
    model: str
    requests: int
    tokens: int


def tiers_used(window: Interval, epochs: EpochFilter) -> list[TierUsage]:
    """Return usage of a window in tiers that are not standard and that no rule bills as standard, in order of the names."""
    return [TierUsage(*row) for row in rows_read(OF_TIERS, _asked(window, epochs))]


def _asked(window: Interval, epochs: EpochFilter) -> dict[str, Any]:
    return {"start": window.start, "end": window.end, "first": epochs.first, "before": epochs.before}
