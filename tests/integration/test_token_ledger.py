"""One row per key: what a row of the token ledger keeps, what readers see of it, and how it came from the older form."""

import json
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, OperationalError, connection, connections

from billing.usage.services import IngestOutcome, Reporter, token_group, tokens
from billing.usage.services.outcome import Reporter as ReporterType
from billing.usage.services.token_batch import TokenBatch, token_batch
from billing.usage.services.token_group import GroupCommit
from metering.records import TokenUsage, decode_batch
from tests.factories import AFTER, ingest_tokens, token_record
from tests.factories.closing import window_close
from tests.factories.threads import at_once
from tests.stored_rows import ledger_emptied, query, rewrite, token_events

pytestmark = pytest.mark.django_db
RANDOM = "7f2d1e5c-0b6a-4c3d-9e8f-001122334455"
ORDERED = "0190b5a2-7c1e-7abc-8def-0123456789ab"
COUNTS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip


def counts(outcome: IngestOutcome) -> tuple[int, int, int]:
    return outcome.accepted, outcome.duplicates, outcome.conflicts


@pytest.mark.parametrize("identity", [RANDOM, ORDERED, "req-1", RANDOM.upper(), "ключ 1"])
def test_the_id_is_read_back_as_it_was_reported(identity: str) -> None:
    ingest_tokens(token_record(id=identity, source="шлюз"))
    assert query(f"SELECT id FROM {token_events()}") == [(identity,)]


@pytest.mark.postgresql("what a row of the table has")
def test_an_id_that_is_its_key_is_not_stored_a_second_time() -> None:
    ingest_tokens(token_record(id=RANDOM), token_record(2, id="req-2"))
    assert sorted(query("SELECT id FROM token_entry")) == [("",), ("req-2",)]


@pytest.mark.parametrize("identity", [RANDOM, ORDERED, "req-1"])
def test_a_key_is_known_for_ever_whatever_time_the_retry_carries(identity: str) -> None:
    first = token_record(id=identity, time="2020-01-01T00:00:00Z")
    assert counts(ingest_tokens(first)) == (1, 0, 0)
    assert counts(ingest_tokens({**first, "time": "2026-10-31T00:00:00Z"})) == (0, 0, 1)
    assert counts(ingest_tokens(first)) == (0, 1, 0)
    assert counts(ingest_tokens({**first, "source": "other"})) == (1, 0, 0)
    assert query(f"SELECT count(*), min(time)::text FROM {token_events()}") == [(2, "2020-01-01 00:00:00+00")]


@pytest.mark.parametrize("largest", [2**15 - 1, 2**15, 2**31 - 1, 2**31, 10**15])
def test_counts_of_any_size_are_read_back_exactly(largest: int) -> None:
    reported = dict(zip(COUNTS, (largest, largest - 7, 3, largest, 5), strict=True))
    record = token_record(attributes={"a": [1, 2.5]}, **reported)
    ingest_tokens(record)
    assert query(f"SELECT {', '.join(COUNTS)} FROM {token_events()}") == [tuple(reported.values())]
    assert query(f"SELECT attributes ->> 'a' FROM {token_events()}") == [("[1, 2.5]",)]
    assert counts(ingest_tokens(record)) == (0, 1, 0)
    assert counts(ingest_tokens({**record, "output_tokens": largest - 1})) == (0, 0, 1)
    assert query("SELECT sum(output_tokens)::bigint FROM token_usage_hour") == [(largest,)]


def test_without_attributes_readers_see_none() -> None:
    ingest_tokens(token_record())
    assert query(f"SELECT attributes FROM {token_events()}") == [(None,)]


@pytest.mark.parametrize(
    "changed",
    [
        {"consumer": "x"}, {"model": "x"}, {"site": "x"}, {"provider": "x"}, {"status": "x"}, {"input_tokens": 1001},
        {"cache_read_input_tokens": 201}, {"cache_creation_input_tokens": 1}, {"output_tokens": 101},
        {"reasoning_output_tokens": 41}, {"attributes": {"a": 2}}, {"attributes": None},
        {"time": "2026-10-15T12:00:00.000001+08:00"},
    ],
)  # fmt: skip
def test_every_field_beside_the_key_distinguishes_a_conflict_from_a_duplicate(changed: dict[str, Any]) -> None:
    record = token_record(attributes={"a": 1, "b": "x"})
    ingest_tokens(record)
    same = {**record, "time": "2026-10-15T04:00:00Z", "attributes": {"b": "x", "a": 1}}
    assert counts(ingest_tokens(same)) == (0, 1, 0)
    assert counts(ingest_tokens({**record, **changed})) == (0, 0, 1)


@pytest.mark.postgresql("how a view of the table is read")
def test_reading_without_the_id_never_touches_the_dimensions() -> None:
    """The view joins them for the id alone; a plan without the id must not pay for it."""
    plan = query("EXPLAIN SELECT sum(output_tokens) FROM token_event WHERE time >= '2026-10-01'")
    assert "token_dimension" not in str(plan)


def _reported(records: list[dict[str, Any]], reporter: ReporterType) -> TokenBatch:
    raws = [json.dumps(record).encode() for record in records]
    batch = decode_batch(TokenUsage, raws)
    return token_batch(
        records=[record for _, record in batch.records], places=[index for index, _ in batch.records],
        rejected=batch.rejected, raw_at=raws.__getitem__, reporter=reporter, now=AFTER,
    )


def test_reports_that_share_a_transaction_are_answered_each_by_itself() -> None:
    one = _reported([token_record(1), token_record(2), token_record(3, output_tokens=-1)], Reporter("one", "door"))
    two = _reported([token_record(2), token_record(1, output_tokens=99), token_record(4)], Reporter("two", "door"))
    first, second = tokens._write_batches([one, two])
    assert first.answer() == {
        "accepted": 2, "duplicates": 0, "conflicts": 0,
        "rejected": [{"index": 2, "key": "litellm-hq/req-3", "error": "output_tokens -1: expected `int` >= 0"}],
    }  # fmt: skip
    assert counts(second) == (1, 1, 1)
    assert query("SELECT reporter, reason FROM usage_quarantinedrecord ORDER BY 1") == [
        ("one", "invalid"), ("two", "conflict"),
    ]  # fmt: skip


def test_an_offset_that_the_database_does_not_know_goes_to_quarantine_in_its_own_month() -> None:
    (refused,) = ingest_tokens(token_record(1, time="2026-10-01T03:00:00+16:27")).refusals
    assert refused.error == "time 2026-10-01T03:00:00+16:27 is more than 15:59:00 from UTC"
    assert query("SELECT at = '2026-09-30T10:33:00Z' FROM usage_quarantinedrecord") == [(True,)]


@pytest.fixture
def committing(transactional_db: None) -> Iterator[None]:
    yield
    connections.close_all()


def _submit_all(group: GroupCommit, batches: list[TokenBatch]) -> list[IngestOutcome | BaseException]:
    return at_once(*(partial(group.submit, batch) for batch in batches))


def test_reports_that_come_while_another_is_written_share_one_transaction(committing: None) -> None:
    sizes: list[int] = []

    def slowly(batches: Any) -> list[IngestOutcome]:
        sizes.append(len(batches))
        time.sleep(0.2)
        return tokens._write_batches(batches)

    group = GroupCommit(slowly, most=1000)
    answers = _submit_all(group, [_reported([token_record(n)], Reporter("t", "d")) for n in range(12)])
    assert [counts(answer) for answer in answers if isinstance(answer, IngestOutcome)] == [(1, 0, 0)] * 12
    assert sum(sizes) == 12
    assert len(sizes) <= 4
    assert query(f"SELECT count(*), sum(requests) FROM {token_events()}, token_usage_hour")[0][0] > 0
    assert query(f"SELECT count(*) FROM {token_events()}") == [(12,)]


def test_a_group_takes_no_more_than_its_limit(committing: None) -> None:
    sizes: list[int] = []

    def slowly(batches: Any) -> list[IngestOutcome]:
        sizes.append(sum(len(batch.records) for batch in batches))
        time.sleep(0.1)
        return tokens._write_batches(batches)

    group = GroupCommit(slowly, most=10)
    batches = [_reported([token_record(n * 10 + k) for k in range(4)], Reporter("t", "d")) for n in range(9)]
    assert all(isinstance(answer, IngestOutcome) for answer in _submit_all(group, batches))
    assert (sum(sizes), max(sizes) <= 10) == (36, True)


def test_who_waits_too_long_for_a_writer_is_sent_away_and_nothing_of_his_is_written(
    committing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_group, "QUEUE_SECONDS", 0.05)
    gone = threading.Event()

    def stuck(batches: Any) -> list[IngestOutcome]:
        gone.wait(30)
        return tokens._write_batches(batches)

    group = GroupCommit(stuck, most=1000)
    first = threading.Thread(target=lambda: (group.submit(_reported([token_record(1)], Reporter("t", "d"))),
                                             connections.close_all()))  # fmt: skip
    first.start()
    while not group._is_writing:
        time.sleep(0.001)
    with pytest.raises(OperationalError, match="no report was written"):
        group.submit(_reported([token_record(2)], Reporter("t", "d")))
    gone.set()
    first.join(30)
    assert query(f"SELECT id FROM {token_events()}") == [("req-1",)]


def test_one_poisoned_report_does_not_fail_its_neighbours(committing: None) -> None:
    def refusing(batches: Any) -> list[IngestOutcome]:
        time.sleep(0.1)
        if any(record.id == "req-3" for batch in batches for record in batch.records):
            raise DataError("a value that the database refuses")
        return tokens._write_batches(batches)

    group = GroupCommit(refusing, most=1000)
    answers = _submit_all(group, [_reported([token_record(n)], Reporter("t", "d")) for n in range(6)])
    assert isinstance(answers[3], DataError)
    assert sum(isinstance(answer, IngestOutcome) for answer in answers) == 5
    assert query(f"SELECT count(*) FROM {token_events()}") == [(5,)]


@pytest.fixture(params=["one statement", "copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of writing: small groups in one statement, large ones with COPY."""
    if request.param == "copy":
        monkeypatch.setattr(tokens, "SMALL", -1)
    return str(request.param)


def test_an_acknowledged_report_is_durable_whatever_the_session_was_set_to(committing: None, way: str) -> None:
    """Read by a trigger at the very commit: what the transaction will wait for."""
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE TABLE seen (id serial, setting text);
               CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN INSERT INTO seen (setting) VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
               CREATE CONSTRAINT TRIGGER see AFTER INSERT ON token_hour_delta DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION see()"""
        )
        try:
            ingest_tokens(token_record(1))
            cursor.execute("SET synchronous_commit TO off")
            ingest_tokens(token_record(2))
            cursor.execute("SET synchronous_commit TO remote_write")
            ingest_tokens(token_record(3))
            assert query("SELECT setting FROM seen ORDER BY id") == [("on",), ("on",), ("remote_write",)]
        finally:
            cursor.execute("RESET synchronous_commit; DROP FUNCTION see CASCADE; DROP TABLE seen")
    assert query("SHOW fsync") == [("on",)]


def test_both_ways_of_writing_say_and_keep_the_same(committing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same made-up reports, with repeats, conflicts, bad, old and huge ones, written in each way."""
    kept = []
    for small in (200, -1):
        monkeypatch.setattr(tokens, "SMALL", small)
        chance = random.Random(20261121)
        answers = [ingest_tokens(*_made_up(chance)).answer() for _ in range(40)]
        reported = query("SELECT id, time, epoch, attributes::text, " + ", ".join(COUNTS)
                         + f" FROM {token_events()} ORDER BY key")  # fmt: skip
        hours = query("SELECT hour, dimension, sum(requests)::int, sum(output_tokens)::bigint FROM token_usage_hour"
                      " GROUP BY 1, 2 ORDER BY 1, 2")  # fmt: skip
        refused = query("SELECT key, reason, times_received FROM usage_quarantinedrecord ORDER BY key, reason, error")
        kept.append((answers, reported, hours, refused))
        assert sum(hour[2] for hour in hours) == len(reported) > 50
        ledger_emptied()
        rewrite("TRUNCATE usage_quarantinedrecord")
    assert kept[0] == kept[1]
    assert kept[0][3] != []


def _made_up(chance: random.Random) -> list[dict[str, Any]]:
    return [
        token_record(
            chance.randrange(150), id=chance.choice([RANDOM, ORDERED, f"req-{chance.randrange(150)}"]),
            time=f"20{chance.randrange(20, 26)}-01-01T00:{chance.randrange(60):02d}:00.{chance.randrange(10**6):06d}Z",
            consumer=chance.choice("ab"), output_tokens=chance.choice([100, 100, 100, 2**15, 2**31 - 1, 10**12, -1]),
            attributes=chance.choice([None, {"k": "\"{},"}, {"n": 1.5}]), site=chance.choice([None, "x"]),
        )
        for _ in range(chance.randrange(1, 12))
    ]  # fmt: skip


def test_a_report_is_written_again_over_a_new_connection_if_its_own_was_dead(committing: None, way: str) -> None:
    ingest_tokens(token_record(1))
    pid = query("SELECT pg_backend_pid()")[0][0]
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()
    assert counts(ingest_tokens(token_record(2))) == (1, 0, 0)
    assert query(f"SELECT count(*) FROM {token_events()}") == [(2,)]


def test_a_large_report_after_a_close_belongs_to_the_next(committing: None) -> None:
    number = tokens.SMALL + 1
    ingest_tokens(*[token_record(place) for place in range(number)])
    window_close(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert ingest_tokens(*[token_record(place) for place in range(2 * number)]).accepted == number
    assert query(f"SELECT epoch, count(*) FROM {token_events()} GROUP BY 1 ORDER BY 1") == [(0, number), (1, number)]
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
    first = _reported([*fresh[:30], *old[20:60]], Reporter("one", "door"))
    second = _reported([*old[:7], *changed, *fresh[20:], *old[60:100], old[60]], Reporter("two", "door"))
    assert first.columns is not None
    assert second.columns is not None
    assert (first.columns.bare.all(), second.columns.bare.all()) == (True, bare)
    one, two = tokens._write_batches([first, second])
    assert (one.accepted, one.duplicates, one.conflicts) == (30, 40, 0)
    assert (two.accepted, two.duplicates, two.conflicts) == (20, 7 + 10 + 40 + 1, 5)
    assert sorted(refusal.index for refusal in two.refusals) == [7, 8, 9, 10, 11]
    assert query(f"SELECT count(*), sum(output_tokens)::int FROM {token_events()}") == [(150, 150 * old[0]["output_tokens"])]
    assert query("SELECT sum(requests)::int FROM token_usage_hour") == [(150,)]
