"""A filled ledger of one table is put in parts while usage comes in, and may be interrupted: nothing is lost or doubled."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from billing.closing.services.closing import period_close
from billing.runtime.advisory_lock import advisory_lock
from billing.runtime.sql_files import sql_file
from billing.tenancy.models import AuditEntry
from billing.usage.archive.sealed import seals
from billing.usage.services import archiving
from billing.usage.services.archiving import records_archive, records_restore
from billing.usage.services.sealing import SealError, usage_seal
from billing.usage.store import parts, rebuild
from billing.usage.store.parts import PartsError
from billing.usage.store.rebuild import ledger_rebuild
from tests.factories import apply, ingest_tokens, person, token_record, uuid7
from tests.factories.commands import Manage
from tests.factories.months import OCTOBER_OVER
from tests.factories.token_reads import CLOSED, RECORDS, outcome, reads
from tests.stored_rows import query, rewrite

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql("it is its own table that is put in parts")]

FILES = ("tokens", "token_keys", "token_shards")
ENTRIES = "SELECT * FROM token_entry ORDER BY key"
KINDS = """SELECT relname, relkind FROM pg_class
    WHERE relname ~ '^token_(entry|rebuild)' AND relkind IN ('r', 'p') AND NOT relispartition"""
READER = "suanpan_tests_reader"
TIMED = [
    token_record(number, id=uuid7("2026-10-15T04:00:00+00:00", number), attributes=None if number % 7 else {"n": 1})
    for number in range(300)
]
HASHED = [token_record(1000 + number, time="2026-10-16T00:00:00Z") for number in range(300)]


@pytest.fixture(autouse=True)
def one_table(tmp_path: Path) -> Iterator[None]:
    """The ledger as release 1.0 made it, with 603 records of epoch 0 and 2 of epoch 1; one role more may read it."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE token_entry CASCADE")
        for name in FILES:
            cursor.execute(sql_file("billing.usage", name))
        cursor.execute(f"CREATE ROLE {READER}; GRANT SELECT ON token_entry TO {READER}")
    apply(tmp_path)
    ingest_tokens(*TIMED, *RECORDS, *HASHED)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_tokens(token_record(5000), token_record(5001, id=uuid7("2026-10-17T04:00:00+00:00", 1)))
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS token_entry_new, token_entry_before, token_rebuild, token_entry CASCADE")
        cursor.execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}")
        for name in (*FILES, "token_parts"):
            cursor.execute(sql_file("billing.usage", name))
        cursor.execute(sql_file("billing.rating", "as_owner"))


def ended(entries: list[Any]) -> None:
    """The ledger is in parts, with these records, guarded and readable, and nothing is left of the way there."""
    assert query(KINDS) == [("token_entry", "p")]
    assert query(ENTRIES) == entries
    assert query("SELECT tableoid::regclass::text, count(*) > 0 FROM token_entry GROUP BY 1 ORDER BY 1") == [
        ("token_entry_2026_10", True), ("token_entry_other", True), ("token_entry_unmade", True),
    ]  # fmt: skip
    (number,) = query("SELECT count(*) FROM token_event")[0]
    assert number == len(entries)
    assert outcome(*TIMED, *RECORDS, *HASHED) == (0, 603, 0)
    assert outcome(*TIMED[:3], {**HASHED[0], "output_tokens": 101}) == (0, 3, 1)
    for refused in ("DELETE FROM token_entry", "UPDATE token_entry SET epoch = 0", "TRUNCATE token_entry"):
        with pytest.raises(IntegrityError, match="reported usage is never changed"), transaction.atomic():
            query(refused)
    assert query("SELECT has_table_privilege(%s, 'token_entry', 'SELECT')", READER) == [(True,)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'token_entry'::regclass ORDER BY 1")
        assert cursor.fetchall() == [("token_entry_pkey",), ("token_entry_time",)]


def test_a_ledger_is_put_in_parts_and_every_read_gives_what_it_gave() -> None:
    before, entries = reads(), query(ENTRIES)
    heard: list[tuple[int, int]] = []
    assert ledger_rebuild(actor="lin", advance=lambda *given: heard.append(given)) == 605
    assert reads() == before
    ended(entries)
    (entry,) = AuditEntry.objects.filter(action="usage_partition")
    assert (entry.actor, entry.detail) == ("lin", {"rows": 605})
    assert [(done == of, of > 4) for done, of in heard] == [(True, True)]
    assert ledger_rebuild(actor="lin") is None


def test_what_comes_in_meanwhile_is_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """New records and repeats, few and many, between the copies of single pages."""
    monkeypatch.setattr(rebuild, "PAGES", 1)
    number = 0

    def meanwhile(done: int, of: int) -> None:
        nonlocal number
        number += 1
        numbers = range(10_000 * number, 10_000 * number + 70)
        some = [token_record(more, id=uuid7("2026-10-18T00:00:00Z", more)) for more in numbers]
        assert outcome(*some, *TIMED[:5], *HASHED[:5]) == (70, 10, 0)
        assert outcome(token_record(100_000 + number), TIMED[5], HASHED[5]) == (1, 2, 0)
        assert query("SELECT count(*) FROM token_entry_new WHERE id = %s", f"req-{100_000 + number}") == [(1,)]

    pages = query("SELECT (pg_relation_size('token_entry') / 8192)::int")[0][0]
    assert ledger_rebuild(actor="lin", advance=meanwhile) == 605 + 71 * pages
    assert number == pages
    assert query("SELECT count(*), count(DISTINCT key) FROM token_entry") == [(605 + 71 * pages, 605 + 71 * pages)]


class Stopped(Exception):
    """The process ended here."""


@pytest.mark.parametrize(
    ("name", "times"), [("_copy", 0), ("_copy", 2), ("_require_same", 0), ("older_wait", 0), ("_exchange", 0), ("_end", 0)]
)
def test_an_interrupted_rebuild_loses_nothing_and_goes_on(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
    """Before a step that was done so many times."""
    monkeypatch.setattr(rebuild, "PAGES", 1)
    real, left = getattr(rebuild, name), times

    def stopped(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped
        return real(*given)

    monkeypatch.setattr(rebuild, name, stopped)
    with pytest.raises(Stopped):
        ledger_rebuild(actor="lin")
    monkeypatch.setattr(rebuild, name, real)
    late = token_record(6000, id=uuid7("2026-10-17T04:00:00+00:00", 2))
    assert outcome(late, TIMED[0], HASHED[0], RECORDS[1]) == (1, 3, 0)
    assert outcome(late, {**HASHED[0], "output_tokens": 101}) == (0, 1, 1)
    entries = query(ENTRIES)
    assert len(entries) == 606
    assert ledger_rebuild(actor="lin") == 606
    ended(entries)


def test_a_month_leaves_one_table_row_by_row_and_what_is_left_of_it_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows before the ledger is put in parts, the others after; and all of them are back at the end."""
    before = reads()
    seal, _ = usage_seal(closed=CLOSED, address=str(tmp_path / "archive"), actor="ops", now=OCTOBER_OVER)
    real, steps = archiving.records_leave, iter(range(3))
    monkeypatch.setattr(archiving, "records_leave", lambda *given: (next(steps), real(*given))[1])
    with pytest.raises(StopIteration):
        records_archive(closed=CLOSED, seal=seal, actor="ops", step=100)
    monkeypatch.undo()
    assert (query("SELECT count(*) FROM token_entry"), reads()) == ([(305,)], before)
    assert ledger_rebuild(actor="lin") == 305
    assert (outcome(*TIMED, *RECORDS, *HASHED), reads()) == ((0, 603, 0), before)
    assert records_archive(closed=CLOSED, seal=seal, actor="ops", step=100) == 603
    assert (query("SELECT count(*) FROM token_entry"), reads()) == ([(2,)], before)
    assert records_restore(month="2026-10", actor="ops", step=100) == 603
    assert (query("SELECT count(*) FROM token_entry"), reads()) == ([(605,)], before)


def test_months_do_not_leave_or_come_back_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal, _ = usage_seal(closed=CLOSED, address=str(tmp_path / "archive"), actor="ops", now=OCTOBER_OVER)

    def stopped(*_: Any) -> None:
        raise Stopped

    monkeypatch.setattr(rebuild, "_exchange", stopped)
    with pytest.raises(Stopped):
        ledger_rebuild(actor="lin")
    monkeypatch.undo()
    with pytest.raises(SealError, match="usage_partition was begun and has not ended; run it again first"):
        records_archive(closed=CLOSED, seal=seal, actor="ops")
    before = reads()
    assert ledger_rebuild(actor="lin") == 605
    assert records_archive(closed=CLOSED, seal=seal, actor="ops") == 603
    assert seals("2026-10")
    assert reads() == before
    assert outcome(*TIMED, *RECORDS, *HASHED) == (0, 603, 0)


@pytest.mark.parametrize("change", [
    "DELETE FROM token_entry_new WHERE id = 'req-1000'", "UPDATE token_entry_new SET rest = 'x' WHERE id = 'req-1000'",
    "UPDATE token_entry_new SET epoch = 1 WHERE id = 'req-1000'",
])  # fmt: skip
def test_a_copy_that_differs_never_takes_the_place(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    real, entries = rebuild._require_same, query(ENTRIES)

    def changed_before() -> int:
        assert rewrite(change) == 1
        return real()

    monkeypatch.setattr(rebuild, "_require_same", changed_before)
    with pytest.raises(PartsError, match="the copy is not what the ledger is"):
        ledger_rebuild(actor="lin")
    assert (query(ENTRIES), query("SELECT to_regclass('token_entry_before')")) == (entries, [(None,)])
    assert outcome(TIMED[0], token_record(7000)) == (1, 1, 0)


def test_a_reader_with_a_long_transaction_keeps_the_table_and_ingest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ATTEMPTS", 2)
    monkeypatch.setattr(parts, "PAUSE_SECONDS", 0.1)
    with psycopg.connect(connection.connection.info.dsn, password=connection.settings_dict["PASSWORD"]) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT count(*) FROM token_entry").fetchone() == (605,)
        with pytest.raises(PartsError, match="1 transactions do not end"):
            ledger_rebuild(actor="lin")
        monkeypatch.setattr(rebuild, "older_wait", lambda: None)
        with pytest.raises(PartsError, match="a transaction reads the ledger and does not end"):
            ledger_rebuild(actor="lin")
        assert outcome(token_record(7000), TIMED[0]) == (1, 1, 0)
        assert reader.execute("SELECT count(*) FROM token_entry").fetchone() == (605,)
    monkeypatch.undo()
    entries = query(ENTRIES)
    assert ledger_rebuild(actor="lin") == 606
    ended(entries)


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    person("lin", "finance")
    person("kim", "auditor")
    partition = partial(Manage(capsys), "usage_partition", "--by")
    assert "takes an account with the right" in partition("kim").error
    with advisory_lock(parts.ALONE, wait=False):
        busy = partition("lin")
    assert (busy.status, busy.out) == (3, "FAIL another usage_drop, usage_restore or usage_partition is at work\n")
    assert partition("lin").out == "605 records are in parts by month\n"
    assert partition("lin").out == "the ledger is in parts already\n"
    assert json.loads(partition("lin", "--json").out) == {"records": None}
