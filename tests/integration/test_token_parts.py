"""The ledger in parts by key: a month goes as a whole, its keys go on refusing repeats, and nothing else is lost."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from billing.runtime.advisory_lock import advisory_lock
from billing.usage import tasks
from billing.usage.archive.sealed import seals
from billing.usage.services.archiving import records_archive, records_restore
from billing.usage.services.sealing import SealError
from billing.usage.store import parts
from billing.usage.store.parts import months_make, part_of
from billing.usage.store.records import rows_known
from metering.intervals import billing_month
from metering.token_keys import token_key
from tests.factories import apply, ingest_tokens, token_record, uuid7
from tests.factories.token_reads import CLOSED, RECORDS, outcome, reads, sealed_october
from tests.stored_rows import query, token_events

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql("parts are those of its own table")]

ENTRIES = "SELECT * FROM token_entry ORDER BY key"
PART = "token_entry_2026_10"
WHERE = "SELECT tableoid::regclass::text, count(*)::int FROM token_entry GROUP BY 1 ORDER BY 1"


def timed(number: int, at: str = "2026-10-15T12:00:00+08:00", **changed: Any) -> dict[str, Any]:
    """A record whose id begins with its time."""
    return token_record(number, **{"id": uuid7(at, number), "time": at, **changed})


FIRST_HOURS = timed(13, "2026-10-01T01:00:00+08:00")
"""Of October in Shanghai, and of September in UTC."""
OF_OCTOBER = [*RECORDS, timed(11), timed(12, attributes={"n": 1}), FIRST_HOURS]
STRAY = timed(14, time="2026-11-02T00:00:00+08:00")
"""Begun in October, and used in November."""


@pytest.fixture(autouse=True)
def months() -> Iterator[None]:
    for month in ("2026-09-01", "2026-10-01", "2026-11-01"):
        query("SELECT token_month_make(%s)", month)
    yield
    with connection.cursor() as cursor:  # what an interrupted step left
        cursor.execute(f"DROP TRIGGER IF EXISTS rows_follow ON {PART}; DROP TABLE IF EXISTS {PART}_stay, {PART}_left;"
                       f"ALTER TABLE token_entry_unmade DROP CONSTRAINT IF EXISTS none_of_{PART}")  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    apply(tmp_path)
    ingest_tokens(*OF_OCTOBER, STRAY)
    sealed_october(tmp_path / "archive")
    return tmp_path / "archive"


def drop(step: int = 2) -> int:
    (seal,) = seals("2026-10")
    return records_archive(closed=CLOSED, seal=seal, actor="ops", step=step)


def test_an_id_that_tells_its_time_is_in_the_part_of_its_month_and_any_other_in_one_without(tmp_path: Path) -> None:
    """2049 ends where keys are 0x024bce5cf000...; a random UUID may fall among those of a month without a part."""
    apply(tmp_path)
    ids = [f"{first}-0000-4000-8000-000000000000" for first in ("024b0000", "024bd000")]
    random = [token_record(number, id=name) for number, name in enumerate(ids, 2)]
    records = [timed(1), timed(2, "2026-11-15T12:00:00+08:00"), FIRST_HOURS, token_record(1), *random]
    assert outcome(*records) == (6, 0, 0)
    found = {"token_entry_2026_09": 1, PART: 1, "token_entry_2026_11": 1, "token_entry_other": 2, "token_entry_unmade": 1}
    assert dict(query(WHERE)) == found
    assert outcome(*records) == (0, 6, 0)


@pytest.mark.parametrize("more", [0, 70])
def test_keys_of_every_kind_are_found_one_by_one_and_among_many(tmp_path: Path, more: int) -> None:
    """Of now, of a month long ago, of one to come, random ones and hashed ones."""
    apply(tmp_path)
    now = datetime.now(UTC)
    instants = [now - timedelta(days=days) for days in (0, 1, 34, 36, 90, 400)]
    records = [timed(number, at.isoformat(timespec="milliseconds")) for number, at in enumerate(instants)]
    records += [token_record(50, id="01a00000-0000-4000-8000-000000000000"), token_record(51)]
    records += [token_record(52, id=uuid7("2040-01-01T00:00:00Z", 52))]
    others = [token_record(1000 + number) for number in range(more)]
    assert outcome(*records, *others) == (9 + more, 0, 0)
    assert outcome(*records, *others) == (0, 9 + more, 0)
    assert outcome(*({**record, "output_tokens": 101} for record in records), *others) == (0, more, 9)


def test_a_month_goes_as_a_whole_and_what_stays_of_it_is_still_there(archive: Path) -> None:
    before, entries = reads(), query(ENTRIES)
    assert query(WHERE) == [("token_entry_2026_09", 1), (PART, 3), ("token_entry_other", 2), ("token_entry_unmade", 1)]
    table = query("SELECT %s::regclass::oid", PART)
    assert drop() == 6
    assert query(WHERE) == [(PART, 1)]
    assert query("SELECT %s::regclass::oid", PART) != table
    assert reads() == before
    assert outcome(STRAY, *OF_OCTOBER) == (0, 7, 0)
    assert outcome({**STRAY, "output_tokens": 101}) == (0, 0, 1)
    assert outcome({**timed(11), "output_tokens": 101}) == (0, 0, 1)
    assert outcome({**timed(11), "time": "2026-11-09T00:00:00Z"}) == (0, 0, 1)
    assert drop() == 6
    assert query(WHERE) == [(PART, 1)]
    assert records_restore(month="2026-10", actor="ops") == 6
    assert (query(ENTRIES), reads()) == (entries, before)
    assert drop() == 6
    assert query(WHERE) == [(PART, 1)]


def test_a_late_record_that_was_born_in_a_month_that_left_enters_and_stays(archive: Path) -> None:
    drop()
    late = timed(15, "2026-10-20T00:00:00+08:00")
    assert outcome(late) == (1, 0, 0)
    assert outcome(late, timed(11)) == (0, 2, 0)
    assert query(f"SELECT epoch, count(*) FROM {token_events()} WHERE id = %s GROUP BY 1", late["id"]) == [(1, 1)]
    assert records_restore(month="2026-10", actor="ops") == 6
    assert drop() == 6
    assert query(WHERE) == [(PART, 2)]


def test_every_row_of_the_new_part_is_guarded_as_those_before(archive: Path) -> None:
    drop()
    for refused in (f"DELETE FROM {PART}", f"UPDATE {PART} SET epoch = 0", f"TRUNCATE {PART}", "TRUNCATE token_entry_timed",
                    "TRUNCATE token_entry_other", "DELETE FROM token_entry"):  # fmt: skip
        with pytest.raises(IntegrityError, match="reported usage is never changed"), transaction.atomic():
            query(refused)
    assert query("""SELECT DISTINCT tgname FROM pg_trigger WHERE tgrelid = %s::regclass ORDER BY 1""", PART) == [
        ("never_emptied",), ("only_one_store_takes",), ("only_sealed_rows_leave",), ("rows_stay",),
    ]  # fmt: skip


STEPS = ("_begin", "_require", "older_wait", "_exchange", "_require_left")


class Stopped(Exception):
    """The process ended here."""


def stopped(*_: Any) -> None:
    raise Stopped


@pytest.mark.parametrize("name", STEPS)
def test_a_drop_that_ends_at_any_step_loses_nothing_and_goes_on(
    archive: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before, late = reads(), timed(15, "2026-10-20T00:00:00+08:00")
    real = getattr(parts, name)
    monkeypatch.setattr(parts, name, stopped)
    with pytest.raises(Stopped):
        drop()
    monkeypatch.setattr(parts, name, real)
    assert reads() == before
    assert outcome(*OF_OCTOBER, STRAY, late) == (1, 7, 0)
    assert outcome(late, {**timed(12), "output_tokens": 1, "reasoning_output_tokens": 0}) == (0, 1, 1)
    with_late = reads()
    assert {name for name, given in with_late.items() if given != before[name]} == {"late"}
    assert drop() == 6
    assert reads() == with_late
    assert query(WHERE) == [(PART, 2)]
    assert query("SELECT relname FROM pg_class WHERE relname ~ '_(stay|left)' AND relkind = 'r'") == []
    assert query("SELECT conname FROM pg_constraint WHERE conname ~ '^none_of'") == []
    assert outcome(*OF_OCTOBER, STRAY, late) == (0, 8, 0)


@pytest.mark.parametrize("name", STEPS)
def test_a_drop_that_ended_at_any_step_can_be_taken_back(archive: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Once the part was exchanged, it has to end first."""
    before, entries = reads(), query(ENTRIES)
    real = getattr(parts, name)
    monkeypatch.setattr(parts, name, stopped)
    with pytest.raises(Stopped):
        drop()
    monkeypatch.setattr(parts, name, real)
    if name == "_require_left":
        with pytest.raises(SealError, match="usage_drop has not ended"):
            records_restore(month="2026-10", actor="ops")
        drop()
    assert records_restore(month="2026-10", actor="ops") == 6
    assert (query(ENTRIES), reads(), query("TABLE token_sealed")) == (entries, before, [])
    assert outcome(*OF_OCTOBER, STRAY, timed(15, "2026-10-20T00:00:00+08:00")) == (1, 7, 0)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (f"INSERT INTO {PART}_stay SELECT '01a10000-7000-7000-8000-000000000001', time, dimension, 1, 0, 0, 1, 0, 1, '', ''"
         f" FROM {PART} LIMIT 1", "1 others, 2 copied"),
        (f"DELETE FROM {PART}_stay", "1 others, 0 copied"),
        (f"UPDATE {PART}_stay SET input_tokens = 1001", "1 others, 1 copied"),
        (f"DELETE FROM {PART} WHERE epoch = 0 AND time < '2026-10-31 16:00Z'", "0 records of the month, 2 sealed"),
    ],
)  # fmt: skip
def test_no_part_goes_whose_copy_is_not_exactly_what_stays(
    archive: Path, monkeypatch: pytest.MonkeyPatch, change: str, found: str
) -> None:
    real: Callable[..., None] = parts._require

    def changed_before(*given: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET session_replication_role = replica; {change}; SET session_replication_role = origin")
        real(*given)

    monkeypatch.setattr(parts, "_require", changed_before)
    with pytest.raises(SealError, match=found):
        drop()
    assert query("SELECT to_regclass(%s)", f"{PART}_left") == [(None,)]


def test_a_part_whose_rows_are_nowhere_else_is_never_dropped(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_require_left", stopped)
    with pytest.raises(Stopped):
        drop()
    monkeypatch.undo()
    with connection.cursor() as cursor:
        cursor.execute(f"SET session_replication_role = replica; DELETE FROM {PART}; SET session_replication_role = origin")
    with pytest.raises(SealError, match="1 others are nowhere else"):
        drop()
    assert query(f"SELECT count(*) FROM {PART}_left") == [(3,)]


def test_a_reader_with_a_long_transaction_keeps_the_part_and_ingest_goes_on(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the copy was there: its snapshot would not see the record that stays."""
    monkeypatch.setattr(parts, "ATTEMPTS", 2)
    monkeypatch.setattr(parts, "PAUSE_SECONDS", 0.1)
    before = reads()
    with psycopg.connect(connection.connection.info.dsn, password=connection.settings_dict["PASSWORD"]) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM token_day")
        with pytest.raises(SealError, match="1 transactions do not end"):
            drop()
        assert outcome(timed(15, "2026-10-20T00:00:00+08:00"), timed(11)) == (1, 1, 0)
        assert reader.execute("SELECT count(*) FROM token_entry").fetchone() == (7,)
        monkeypatch.setattr(parts, "older_wait", lambda: None)
        with pytest.raises(SealError, match="a transaction reads the ledger and does not end"):
            drop()
        assert outcome(timed(16, "2026-10-20T00:00:00+08:00"), timed(12, attributes={"n": 1})) == (1, 1, 0)
    monkeypatch.undo()
    before["late"] = reads()["late"]
    assert reads() == before
    assert drop() == 6
    assert (reads(), query(WHERE)) == (before, [(PART, 3)])


def test_an_exchange_does_not_read_the_part_without_a_month(archive: Path) -> None:
    """PostgreSQL says so where it knows beforehand that nothing of the month is there."""
    said = list[str]()
    connection.connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
    with connection.cursor() as cursor:
        cursor.execute("SET client_min_messages = debug1")
    drop()
    with connection.cursor() as cursor:
        cursor.execute("RESET client_min_messages")
    implied = 'updated partition constraint for default partition "token_entry_unmade" is implied by existing constraints'
    assert said.count(implied) == 1


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("there", [0, 1, 300])
def test_many_keys_are_looked_up_by_the_index_of_a_part_that_is_small_yet(
    tmp_path: Path, there: int, analyzed: bool
) -> None:
    """A plan is kept while a part grows: one that reads all of a small part would read all of a large one each time."""
    now = datetime.now(UTC)
    timed_now = [token_key("s", uuid7(now.isoformat(), number)) for number in range(500)]
    of_october = [token_key("s", uuid7("2026-10-15T12:00:00Z", number)) for number in range(500)]
    timeless = [token_key("s", f"r-{number}") for number in range(500)]
    whole = "SELECT coalesce(sum(seq_scan), 0)::int FROM pg_stat_xact_user_tables WHERE relname LIKE 'token_entry%%'"
    apply(tmp_path)
    if there:
        ingest_tokens(*(timed(number, now.isoformat()) for number in range(there)))
    if analyzed:
        connection.cursor().execute("ANALYZE token_entry")
    connection.close()
    with transaction.atomic():
        before = query(whole)
        assert rows_known(",".join(key.hex() for key in [*timed_now, *of_october, *timeless])) == []
        assert query(whole) == before


def test_two_commands_never_move_records_at_once(archive: Path) -> None:
    with (
        advisory_lock(parts.ALONE, wait=False),
        pytest.raises(SealError, match="2026-10: another usage_drop, usage_restore or usage_partition is at work"),
    ):
        drop()
    assert drop() == 6


def test_the_room_of_a_month_is_given_back(tmp_path: Path) -> None:
    """2,000 records and the few that stay: an empty table with its indexes has 4 pages at most."""
    apply(tmp_path)
    ingest_tokens(*(timed(number) for number in range(2_000)), STRAY)
    sealed_october(tmp_path / "archive")
    (before,) = query("SELECT sum(pg_total_relation_size(relid))::int FROM pg_partition_tree('token_entry') WHERE isleaf")[0]
    (part,) = query("SELECT pg_total_relation_size(%s)::int", PART)[0]
    assert part > 200_000
    assert drop(step=500) == 2_000
    (after,) = query("SELECT sum(pg_total_relation_size(relid))::int FROM pg_partition_tree('token_entry') WHERE isleaf")[0]
    assert before - after > part - 12 * 8192


def test_keys_among_those_of_a_new_month_go_into_its_part(tmp_path: Path) -> None:
    apply(tmp_path)
    among = token_record(1, id=uuid7("2031-05-15T00:00:00Z", 1).replace("-7000-", "-4000-"))
    assert outcome(among, token_record(2, id="024bce00-0000-4000-8000-000000000000")) == (2, 0, 0)
    entries = query(ENTRIES)
    assert query(WHERE) == [("token_entry_unmade", 2)]
    with transaction.atomic():
        assert query("SELECT token_month_make('2031-05-01'), token_month_make('2031-05-01')") == [(True, False)]
        assert query(WHERE) == [("token_entry_2031_05", 1), ("token_entry_unmade", 1)]
        assert query(ENTRIES) == entries
        assert outcome(among) == (0, 1, 0)
        with pytest.raises(IntegrityError, match="reported usage is never changed"), transaction.atomic():
            query("DELETE FROM token_entry_unmade")
        transaction.set_rollback(True)
    assert query(WHERE) == [("token_entry_unmade", 2)]


def test_no_month_is_made_that_many_records_would_have_to_move_into(tmp_path: Path) -> None:
    apply(tmp_path)
    assert outcome(token_record(1)) == (1, 0, 0)
    with transaction.atomic():
        query(
            """INSERT INTO token_entry
               SELECT (left(token_first_key('2031-05-02')::text, 24) || to_char(n, 'FM000000000000'))::uuid, time, dimension,
                      1, 0, 0, 1, 0, 0, '', ''
               FROM token_entry, generate_series(1, 100001) AS n RETURNING 1"""
        )
        assert query("SELECT token_month_make('2031-05-01'), token_month_make('2031-06-01')") == [(None, True)]
        transaction.set_rollback(True)


def test_months_to_come_are_made_by_the_scheduler_or_later_and_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Last month, this one and three more; a reader that holds the small part keeps them from being made."""
    tasks.months_make()
    months = [f"token_entry_{month}" for (month,) in query("""SELECT to_char(m, 'YYYY_MM') FROM generate_series(
        date_trunc('month', now() AT TIME ZONE 'UTC') - interval '1 month', date_trunc('month', now() AT TIME ZONE 'UTC')
        + interval '3 months', interval '1 month') AS m""")]  # fmt: skip
    found = {name for (name,) in query("SELECT relid::regclass::text FROM pg_partition_tree('token_entry') WHERE isleaf")}
    assert (len(months), set(months) - found) == (5, set())
    last = months[-1]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {last}")
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("BEGIN; SELECT count(*) FROM token_entry")
        assert months_make() == [last.removeprefix("token_entry_").replace("_", "-")]
        tasks.months_make()
    assert [record.getMessage()[:29] for record in caplog.records] == ["no part of the ledger for " + last[12:15]]
    other.close()
    assert months_make() == []


def test_the_part_of_a_month_is_that_of_its_middle() -> None:
    for zone in ("Asia/Shanghai", "America/New_York", "UTC"):
        part = part_of(billing_month("2026-10", zone))
        assert part is not None
        assert (part.name, part.low.hex(), part.high.hex()) == (
            PART, "01a0f4c2c400" + "0" * 20, "01a19467e800" + "0" * 20,
        )  # fmt: skip
    assert token_key("s", uuid7("2026-10-31T23:59:59.999Z", 1)) in part
    assert token_key("s", uuid7("2026-11-01T00:00:00Z", 1)) not in part
    assert part_of(billing_month("2019-10", "UTC")) is None
    assert (query("SELECT token_first_key('2026-10-01Z')::text, token_first_key('2026-11-01Z')::text")) == [
        (str(UUID(bytes=part.low)), str(UUID(bytes=part.high)))
    ]
