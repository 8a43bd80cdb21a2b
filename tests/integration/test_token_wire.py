"""Large reports: in the current epoch, each repeat counted once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection, connections

from billing.usage.models import Close
from billing.usage.services import Reporter, tokens
from billing.usage.services.token_batch import TokenBatch, token_batch
from metering.records import TokenUsage
from tests.factories import ingest_tokens, token_record


@pytest.fixture
def committing(transactional_db: None) -> Iterator[None]:
    yield
    connections.close_all()


def query(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def close_once() -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    Close.objects.create(close_seq=1, start=day, end=day.replace(day=2))


def test_a_large_report_after_a_close_belongs_to_the_next(committing: None) -> None:
    number = tokens.SMALL + 1
    ingest_tokens(*[token_record(place) for place in range(number)])
    close_once()
    assert ingest_tokens(*[token_record(place) for place in range(2 * number)]).accepted == number
    assert query("SELECT epoch, count(*) FROM token_event GROUP BY 1 ORDER BY 1") == [(0, number), (1, number)]
    hours = "SELECT epoch, sum(requests)::int FROM token_hour_delta GROUP BY 1 ORDER BY 1"
    assert query(hours) == [(0, number), (1, number)]


@pytest.mark.parametrize("bare", [True, False])
def test_repeats_in_large_reports_that_share_a_transaction_are_counted_each_by_its_own_report(
    committing: None, bare: bool
) -> None:
    """Records that need nothing but columns are compared all at once, others one by one."""
    records = [token_record(place, id=str(UUID(int=place, version=4))) for place in range(150)]
    if not bare:
        records[60]["attributes"] = {"k": 2}
    old, fresh = records[:100], records[100:]
    ingest_tokens(*old)
    changed = [
        {**old[7], "output_tokens": 99}, {**old[8], "consumer": "another"},
        {**old[9], "time": "2026-10-10T00:00:01.000001Z"}, {**old[10], "input_tokens": 10**6}, {**old[11], "site": "x"},
    ]  # fmt: skip
    first = reported([*fresh[:30], *old[20:60]])
    second = reported([*old[:7], *changed, *fresh[20:], *old[60:100], old[60]])
    assert first.columns is not None
    assert second.columns is not None
    assert (first.columns.bare.all(), second.columns.bare.all()) == (True, bare)
    one, two = tokens._write_batches([first, second])
    assert (one.accepted, one.duplicates, one.conflicts) == (30, 40, 0)
    assert (two.accepted, two.duplicates, two.conflicts) == (20, 7 + 10 + 40 + 1, 5)
    assert sorted(refusal.index for refusal in two.refusals) == [7, 8, 9, 10, 11]
    assert query("SELECT count(*), sum(output_tokens)::int FROM token_event") == [(150, 150 * old[0]["output_tokens"])]
    assert query("SELECT sum(requests)::int FROM token_usage_hour") == [(150,)]


def reported(records: list[dict[str, Any]]) -> TokenBatch:
    raws = [msgspec.json.encode(record) for record in records]
    return token_batch(
        records=[msgspec.json.decode(raw, type=TokenUsage) for raw in raws], raw_at=raws.__getitem__,
        reporter=Reporter("tests", "usage/tokens"), now=datetime(2026, 11, 1, tzinfo=UTC),
    )  # fmt: skip
