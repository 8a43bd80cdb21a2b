"""Servers that are away, writers that end in between, a database that was restored: a record counts once, or not at all."""

import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from billing.tenancy.database_roles import rights_grant
from billing.usage.archive import rows
from billing.usage.scope import EpochFilter
from billing.usage.services import Reporter, token_batch, tokens
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store import clickhouse, records, sharded
from billing.usage.store.clickhouse import Servers, StoreAwayError
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.sums import token_sums
from metering.records import TokenUsage, decode_batch
from tests.clickhouse.servers import Replica, healed
from tests.documented import SCALE, of_page, words
from tests.factories import AFTER, ingest_tokens, own_token, person, token_record
from tests.factories.closing import window_close
from tests.factories.ingest import OCTOBER, answer
from tests.factories.token_endpoint import body, through_django
from tests.stored_rows import query, rewrite

pytestmark = pytest.mark.django_db(transaction=True)
APPLICATION = "suanpan_tests_clickhouse"
REPORTER = Reporter("gateway", "usage/tokens")
RECORDS = [token_record(number) for number in range(40)]
CUT = OCTOBER.cut([datetime(2026, 10, 15, 4, 30, tzinfo=UTC)])
"""Within the hour of the records: only they can say what is before and what behind it."""


def counted() -> tuple[int, int]:
    """How many records count by the roll-ups, and by the records themselves."""
    assert set(rollup_difference(OCTOBER).values()) == {0}
    by_hour = query("SELECT coalesce(sum(requests), 0) FROM token_usage_hour")[0][0]
    return int(by_hour), sum(item.requests for item in token_sums(CUT, EpochFilter()))


def query_none(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def in_clickhouse(servers: Servers) -> int:
    """Rows, whether they count or not."""
    found = [servers.rows(number, f"SELECT count() FROM tokens.token_entry_{number}") for number in range(2)]
    return sum(int(rows[0][0]) for rows in found)


def written(*given: dict[str, Any]) -> tuple[int, ...]:
    """Taken as by a process of its own, whose connections are closed then."""
    found = decode_batch(TokenUsage, [json.dumps(record).encode() for record in given])
    batch = token_batch(records=[item for _, item in found.records], raw_at=lambda place: b"", reporter=REPORTER, now=AFTER)
    try:
        return answer(tokens._write_batches([batch])[0])
    finally:
        sharded.beside_close()
        connections.close_all()


class Ended(Exception):
    """The writer is gone."""


def test_records_of_a_writer_that_ended_before_its_commit_count_for_nobody(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = in_clickhouse(servers), sharded.sharded_write

    def last(*given: Any) -> None:
        write(*given)
        raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(records, "sharded_write", last)
        with pytest.raises(Ended):
            ingest_tokens(*RECORDS)
    assert in_clickhouse(servers) == before + 40
    assert counted() == (0, 0)
    assert answer(ingest_tokens(*RECORDS)) == (40, 0, 0, 0)
    assert in_clickhouse(servers) == before + 80
    assert counted() == (40, 40)
    assert answer(ingest_tokens(*RECORDS)) == (0, 40, 0, 0)


@pytest.mark.parametrize("closes", [0, 1])
def test_what_a_writer_inserts_after_it_lost_its_lock_counts_for_nobody(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, closes: int
) -> None:
    """Another writer takes the same records meanwhile, with a close before it; the first then finds them taken."""
    before, insert = in_clickhouse(servers), Servers.insert
    reached, go_on, answers = threading.Barrier(5), threading.Event(), list[Any]()

    def late(self: Servers, *given: Any) -> None:
        reached.wait(60)
        assert go_on.wait(60)
        insert(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Servers, "insert", late)
        thread = threading.Thread(target=lambda: answers.append(written(*RECORDS)))
        thread.start()
        reached.wait(60)  # two tables in two shards
    query("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", sharded.SHARD_LOCK)
    for _ in range(closes):
        window_close(OCTOBER.start, OCTOBER.end)
    assert answer(ingest_tokens(*RECORDS)) == (40, 0, 0, 0)
    go_on.set()
    thread.join(60)
    assert answers == [(0, 40, 0, 0)]
    assert in_clickhouse(servers) == before + 80
    assert counted() == (40, 40)
    assert query("SELECT DISTINCT epoch FROM token_usage_hour") == [(closes,)]


def test_writers_that_bring_the_same_records_at_once_count_each_of_them_once(servers: Servers) -> None:
    orders = [random.Random(seed).sample(RECORDS, 40) for seed in range(8)]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda order: written(*order[:25]), orders))
    distinct = len({record["id"] for order in orders for record in order[:25]})
    assert sum(accepted for accepted, *_ in answers) == distinct
    assert all((accepted + repeats, conflicts, rejected) == (25, 0, 0) for accepted, repeats, conflicts, rejected in answers)
    assert counted() == (distinct, distinct)


def test_a_record_that_another_writer_brings_after_it_was_looked_up_is_a_repeat(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tokens.rows_known

    def meanwhile(keys: str) -> Any:
        found = real(keys)
        monkeypatch.setattr(tokens, "rows_known", real)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(written, *RECORDS[:10]).result() == (10, 0, 0, 0)
        return found

    monkeypatch.setattr(tokens, "rows_known", meanwhile)
    assert answer(ingest_tokens(*RECORDS)) == (30, 10, 0, 0)
    assert counted() == (40, 40)


def test_keys_are_looked_up_once_where_nobody_wrote_since(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_tokens(*RECORDS[:20])
    asked, real = list[int](), Servers.rows
    monkeypatch.setattr(Servers, "rows", lambda self, shard, *given, **named: (
        asked.append(shard), real(self, shard, *given, **named))[1])  # fmt: skip
    assert answer(ingest_tokens(*RECORDS[20:])) == (20, 0, 0, 0)
    assert sorted(asked) == [0, 1]


def test_processes_that_one_forked_do_not_share_its_connections(servers: Servers) -> None:
    """Neither to ClickHouse nor to PostgreSQL, where an answer to one would reach another."""
    ingest_tokens(token_record(99))
    connections.close_all()
    parts = [RECORDS[place::4] for place in range(4)]
    forked = [multiprocessing.get_context("fork").Process(target=_taken_one_by_one, args=(part,)) for part in parts]
    for process in forked:
        process.start()
    for process in forked:
        process.join(60)
    assert [process.exitcode for process in forked] == [0] * 4
    assert counted() == (41, 41)


def _taken_one_by_one(part: list[dict[str, Any]]) -> None:
    connections.close_all()
    assert all(answer(ingest_tokens(record)) == (1, 0, 0, 0) for record in part)
    os._exit(0)


def test_a_process_without_token_store_takes_nothing_once_clickhouse_does(servers: Servers, settings: Any) -> None:
    """Nor do those that know another number of shards."""
    ingest_tokens(*RECORDS)
    settings.TOKEN_STORE = ""
    with pytest.raises(IntegrityError, match="this process has no TOKEN_STORE"):
        ingest_tokens(token_record(99))
    settings.TOKEN_STORE = f"clickhouse://{servers.shards[0][0]}/tokens"
    with pytest.raises(StoreAwayError, match="TOKEN_STORE names 1 shards, the ledger has 2"):
        ingest_tokens(token_record(99))
    with pytest.raises(StoreAwayError, match="their number never changes"):
        token_store_begin(servers=replace(servers, shards=servers.shards[:1]), actor="ops")


@pytest.fixture
def begins(address: str, settings: Any, transactional_db: None) -> Iterator[Callable[[], None]]:
    """Called, lets ClickHouse take records from then on, as the page says; the servers are those of the tests."""
    setting, command = of_page(SCALE, "export TOKEN_STORE='clickhouse://")
    (written,) = (word.removeprefix("TOKEN_STORE=") for word in words(setting)[1:])
    assert [len(replicas) for replicas in clickhouse.servers_read(written).shards] == [3, 3]

    def begin() -> None:
        settings.TOKEN_STORE = address
        person("wang", "finance")
        call_command(*words(command)[2:])

    yield begin
    sharded.beside_close()


def test_records_that_postgresql_has_stay_there_and_are_refused_as_ever(begins: Callable[[], None]) -> None:
    assert answer(ingest_tokens(*RECORDS[:10])) == (10, 0, 0, 0)
    begins()
    assert answer(ingest_tokens(*RECORDS, RECORDS[3] | {"output_tokens": 101})) == (30, 10, 1, 0)
    assert (query("SELECT count(*) FROM token_entry"), counted()) == ([(10,)], (40, 40))


def test_a_month_that_both_stores_have_is_sealed_over_the_connection_at_hand(
    begins: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although another thread reads the rows: only this connection sees what its transaction sees."""
    monkeypatch.setattr(rows, "AT_ONCE", 7)
    ingest_tokens(*RECORDS[:10])
    begins()
    ingest_tokens(*RECORDS[10:])
    with transaction.atomic(), monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "connect", None)
        assert [part.rows for part in rows.parts("tokens", OCTOBER, 1, tmp_path, lambda done: None)] == [40]


def test_a_record_that_comes_back_from_its_archive_meanwhile_is_a_repeat(
    begins: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up in the database before it was back, and in the archive after it had left that."""
    ingest_tokens(RECORDS[0])
    begins()
    real, too_early = tokens.rows_known, [list[Any]()]
    monkeypatch.setattr(tokens, "rows_known", lambda keys: too_early.pop() if too_early else real(keys))
    assert answer(ingest_tokens(*RECORDS)) == (39, 1, 0, 0)
    assert counted() == (40, 40)


def test_a_database_that_was_restored_does_not_count_what_came_after_its_backup(servers: Servers) -> None:
    ingest_tokens(*RECORDS[:20])
    kept = query("SELECT number, batch FROM token_shard")
    ingest_tokens(*RECORDS[20:])
    assert counted() == (40, 40)
    rewrite("UPDATE token_shard SET incarnation = 'of the backup'")
    for number, batch in kept:
        rewrite("UPDATE token_shard SET batch = %s WHERE number = %s", [batch, number])
    assert sum(item.requests for item in token_sums(CUT, EpochFilter())) == 20
    assert answer(ingest_tokens(*RECORDS)) == (20, 20, 0, 0)
    assert sum(item.requests for item in token_sums(CUT, EpochFilter())) == 40
    assert answer(ingest_tokens(*RECORDS)) == (0, 40, 0, 0)


@pytest.fixture
def application(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything from now on is done by the role of the application."""
    query_none(f"CREATE ROLE {APPLICATION} LOGIN PASSWORD 'beads'")
    rights_grant(connection, APPLICATION)
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "USER", APPLICATION)
        patch.setitem(connection.settings_dict, "PASSWORD", "beads")
        yield
        connection.close()
    query_none(f"DROP OWNED BY {APPLICATION}")
    query_none(f"DROP ROLE {APPLICATION}")


def test_the_role_of_the_application_suffices(application: None) -> None:
    assert query("SELECT current_user") == [(APPLICATION,)]
    assert answer(ingest_tokens(*RECORDS)) == (40, 0, 0, 0)
    assert answer(ingest_tokens(*RECORDS, RECORDS[3] | {"output_tokens": 101})) == (0, 40, 1, 0)
    assert counted() == (40, 40)
    sharded.beside_close()


@pytest.mark.parametrize("statement", [
    "DELETE FROM token_shard", "UPDATE token_shard SET batch = batch - 1", "DELETE FROM token_open_batch",
    "UPDATE token_open_batch SET last = last + 1", "TRUNCATE token_shard", "TRUNCATE token_open_batch",
])  # fmt: skip
def test_the_database_guards_what_counts(servers: Servers, statement: str) -> None:
    ingest_tokens(*RECORDS)
    with pytest.raises(IntegrityError):
        query_none(statement)


@pytest.fixture
def one_away_later(both: list[Replica]) -> Iterator[Replica]:
    yield both[1]
    healed(both[1])


@pytest.fixture
def one_away(one_away_later: Replica) -> Replica:
    one_away_later.kill()
    return one_away_later


def test_a_shard_without_a_quorum_answers_503_and_the_repeat_counts_once(
    servers: Servers, one_away: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is read from the replica that is left."""
    monkeypatch.setattr(clickhouse, "QUORUM_MS", 1_500)
    presented = own_token(person("gateway"), "litellm", "usage:write")[1]
    for _ in range(3):
        status, headers, found = through_django(body(*RECORDS), presented)
        assert (status, headers["Retry-After"]) == (503, "2")
    assert counted() == (0, 0)
    healed(one_away)
    for _ in range(60):
        status, headers, found = through_django(body(*RECORDS), presented)
        if status == 200:
            break
        time.sleep(0.5)
    assert (status, found["accepted"], found["duplicates"]) == (200, 40, 0)
    assert counted() == (40, 40)


def taken(*given: dict[str, Any]) -> int:
    """How many are new, once the servers have seen which of them are there and take records again."""
    for _ in range(60):
        try:
            return ingest_tokens(*given).accepted
        except StoreAwayError:
            time.sleep(0.5)
    raise AssertionError("ClickHouse does not take records")


def begun(settings: Any, *places: Replica) -> None:
    """Both shards have these replicas from now on, and each of them has all records."""
    replicas = ",".join(replica.address for replica in places)
    settings.TOKEN_STORE = f"clickhouse://{replicas};{replicas}/tokens"
    call_command("token_store", "--by", "ops")
    for _ in range(150):
        numbers = {tuple(int(replica.ask(f"SELECT count() FROM tokens.{name}_{number}")) for replica in places)
                   for name in ("token_key", "token_entry") for number in (0, 1)}  # fmt: skip
        if all(len(set(found)) == 1 for found in numbers):
            return
        time.sleep(0.2)
    raise AssertionError(numbers)


def test_a_new_replica_gets_all_records_and_three_of_them_go_on_without_one(
    servers: Servers, both: list[Replica], third: Replica, settings: Any, one_away_later: Replica
) -> None:
    """The new one alone then answers as all did."""
    person("ops", "finance")
    assert taken(*RECORDS[:30]) == 30
    begun(settings, *both, third)
    one_away_later.kill()
    assert taken(*RECORDS) == 10
    assert counted() == (40, 40)
    healed(one_away_later)
    begun(settings, both[0], third)
    settings.TOKEN_STORE = f"clickhouse://{third.address};{third.address}/tokens"
    assert counted() == (40, 40)
    assert answer(ingest_tokens(*RECORDS)) == (0, 40, 0, 0)


def test_a_replica_that_has_the_last_batch_but_not_one_before_is_not_asked(
    servers: Servers, both: list[Replica], third: Replica, settings: Any
) -> None:
    """It was away while others took a batch, and takes the next one itself: it would say that old records are new."""
    person("ops", "finance")
    begun(settings, *both, third)
    for number, name in ((0, "key"), (0, "entry"), (1, "key"), (1, "entry")):
        third.ask(f"SYSTEM STOP FETCHES tokens.token_{name}_{number}")
    assert taken(*RECORDS[:20]) == 20
    behind = ",".join(replica.address for replica in (third, *both))
    settings.TOKEN_STORE = f"clickhouse://{behind};{behind}/tokens"
    assert taken(*RECORDS[20:]) == 20
    assert {third.ask(f"SELECT count() FROM tokens.token_entry_{number} WHERE batch > 0") for number in range(2)} != {"0"}
    assert answer(ingest_tokens(*RECORDS)) == (0, 40, 0, 0)
    assert counted() == (40, 40)
