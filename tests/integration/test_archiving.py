"""A sealed month that left the ledger: repeats are refused, late usage is billed, pages and proofs read the archive."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import IntegrityError, connection, transaction

from billing.closing.management.commands import usage_drop
from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.rating.models import Charge
from billing.tenancy.models import AuditEntry
from billing.usage.archive.places import ArchiveError
from billing.usage.archive.sealed import Seal, seals
from billing.usage.scope import EpochFilter
from billing.usage.services import archiving, tokens
from billing.usage.services.archiving import records_archive, records_restore
from billing.usage.services.outcome import Reporter
from billing.usage.services.sealing import SealError, usage_seal
from billing.usage.services.tokens import tokens_ingest
from billing.usage.store.archived import archived_months
from billing.usage.store.dimensions import token_names
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.records import record_stored, requests_of
from billing.usage.store.sums import token_sums
from metering.gateways.translation import UndatedUsage
from metering.intervals import billing_month
from metering.token_keys import token_key
from tests.factories import apply, ingest_tokens, person, token_record
from tests.factories.commands import Manage
from tests.factories.months import NOVEMBER_OVER
from tests.factories.token_reads import CLOSED, OCTOBER, RECORDS, outcome, reads, sealed_october
from tests.stored_rows import postgresql_keeps, query, rewrite, token_events

pytestmark = pytest.mark.django_db(transaction=True)

NEXT = token_record(4, time="2026-11-01T00:00:00+08:00")
ENTRIES = "SELECT * FROM token_entry ORDER BY key"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    apply(tmp_path)
    with postgresql_keeps():
        ingest_tokens(*RECORDS, NEXT)
    sealed_october(tmp_path / "archive")
    return tmp_path / "archive"


def left(step: int = 2) -> Seal:
    (seal,) = seals("2026-10")
    assert records_archive(closed=CLOSED, seal=seal, actor="ops", step=step) == 3
    return seal


def flip(path: Path) -> None:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)


@pytest.mark.parametrize("more", [0, 70])
def test_an_id_of_a_month_that_left_is_refused_and_another_content_is_a_conflict(archive: Path, more: int) -> None:
    """One by one, and with so many others that they are copied."""
    left()
    others = [token_record(100 + number, time="2026-11-02T00:00:00+08:00") for number in range(more)]
    assert outcome(*RECORDS, *others) == (more, 3, 0)
    assert outcome({**RECORDS[0], "output_tokens": 101}, *others) == (0, more, 1)
    assert outcome({**RECORDS[1], "time": "2026-10-15T07:59:59.000002+08:00"}, *others) == (0, more, 1)
    assert outcome({**RECORDS[0], "attributes": {"tags": []}}, *others) == (0, more, 1)
    assert query(f"SELECT count(*) FROM {token_events()}") == [(1 + more,)]


def test_a_repeat_whose_sender_gives_no_time_is_a_duplicate(archive: Path) -> None:
    left()
    again = msgspec.convert({**RECORDS[0], "time": "2026-11-09T00:00:00Z"}, UndatedUsage, strict=False)
    found = tokens_ingest(records=[(0, again, b"")], reporter=Reporter("tests", "usage/tokens"), now=NOVEMBER_OVER)
    assert (found.accepted, found.duplicates, found.conflicts) == (0, 1, 0)


def test_every_read_gives_what_it_gave_also_while_records_leave_and_come_back(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, entries = reads(), query(ENTRIES)
    assert before["sums"] != before["buckets"]
    assert [row["number"] for row in before["requests"]] == [3, 3]

    def interrupted(name: str, run: Any) -> None:
        real = getattr(archiving, name)
        steps = iter([real])
        monkeypatch.setattr(archiving, name, lambda *given: next(steps)(*given))
        with pytest.raises(StopIteration):
            run()
        monkeypatch.setattr(archiving, name, real)

    interrupted("records_leave", lambda: left(step=1))
    assert query("SELECT count(*) FROM token_entry") == [(3,)]
    assert reads() == before
    left(step=1)
    assert query("SELECT count(*) FROM token_entry") == [(1,)]
    assert reads() == before
    interrupted("_put_back", lambda: records_restore(month="2026-10", actor="ops", step=1))
    assert query("SELECT count(*) FROM token_entry") == [(2,)]
    assert reads() == before
    assert records_restore(month="2026-10", actor="ops", step=1) == 3
    assert reads() == before
    assert query(ENTRIES) == entries
    assert query("SELECT * FROM token_sealed") == []
    assert outcome(*RECORDS) == (0, 3, 0)


def test_a_late_record_of_a_month_that_left_is_a_correction_in_the_next_close(archive: Path) -> None:
    """10,000,000 tokens of output at 8 a million; the close of October stays as it was, and so it is when all are back."""
    left()
    assert outcome(token_record(5, output_tokens=10_000_000, reasoning_output_tokens=0)) == (1, 0, 0)
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    late = Charge.objects.get(close_seq=2, correction=True, token_class="output")
    assert (late.charge_period, late.usage_quantity, late.unit_price) == ("2026-10", 10_000_000, Decimal("8.0000"))
    assert all(proof.holds for proof in period_verify(month="2026-10", usage=True))
    assert all(proof.holds for proof in period_verify(month="2026-11", usage=True))
    rows = requests_of([("litellm-hq", OCTOBER)], token_names("nlp-key-1", "llama-3-8b"), EpochFilter(), "output", 9)
    assert [row["id"] for row in rows if row["usage"] == 10_000_000] == ["req-5"]
    assert {row["number"] for row in rows} == {4}
    with pytest.raises(SealError, match="usage_restore 2026-10"):
        usage_seal(closed=CLOSED, address=str(archive), actor="ops", now=NOVEMBER_OVER)
    records_restore(month="2026-10", actor="ops")
    assert query(f"SELECT epoch, count(*) FROM {token_events()} GROUP BY 1 ORDER BY 1") == [(0, 4), (1, 1)]
    _, made = usage_seal(closed=CLOSED, address=str(archive), actor="ops", now=NOVEMBER_OVER)
    assert made


def test_the_archive_of_a_month_that_left_is_recounted(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left()
    recounted = Manage(capsys)("period_recount", "2026-10", "--sealed", archive)
    assert recounted.out.endswith("0 lines differ from what was billed\n")


def test_a_flipped_byte_keeps_records_in_the_ledger(archive: Path) -> None:
    (seal,) = seals("2026-10")
    flip(archive / seal.folder / "tokens-00000.parquet")
    with pytest.raises(ArchiveError, match="has SHA-256"):
        left()
    assert (query("SELECT count(*) FROM token_entry"), archived_months()) == ([(4,)], [])


def test_a_flipped_byte_behind_a_month_that_left_is_found_and_never_read(archive: Path) -> None:
    seal = left()
    flip(archive / seal.folder / "tokens-00000.parquet")
    faults = [proof for proof in period_verify(month="2026-10", usage=True) if not proof.holds]
    assert [fault.of_usage for fault in faults] == [True]
    assert "tokens-00000.parquet: has SHA-256" in faults[0].recomputed
    for read in (
        lambda: requests_of([("litellm-hq", OCTOBER)], token_names("nlp-key-1", "llama-3-8b"), EpochFilter(), "input", 9),
        lambda: record_stored(token_key("litellm-hq", "req-1")),
        lambda: list(token_sums(OCTOBER.cut([OCTOBER.start + timedelta(microseconds=1)]), EpochFilter())),
        lambda: records_restore(month="2026-10", actor="ops"),
    ):
        with pytest.raises(ArchiveError, match="has SHA-256"):
            read()
    assert outcome(*RECORDS) == (0, 3, 0)


def test_roll_ups_that_change_behind_a_month_that_left_are_found(archive: Path) -> None:
    left()
    rewrite("UPDATE token_hour_delta SET input_tokens = input_tokens + 1 WHERE input_tokens = 3000000000")
    faults = [proof.recomputed for proof in period_verify(month="2026-10", usage=True) if not proof.holds]
    assert any("are not the sums of its manifest" in fault for fault in faults)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE token_entry SET rest = '' WHERE id = 'req-1'", "a record that is not as in"),
        ("UPDATE token_entry SET time = time + interval '1 us' WHERE id = 'req-3'", "a record that is not as in"),
        ("UPDATE token_entry SET epoch = 1 WHERE id = 'req-1'", "a record that is not as in"),
        ("UPDATE token_entry SET output_tokens = 101 WHERE id = ''", "a record that is not as in"),
        ("DELETE FROM token_entry WHERE id = 'req-1'", "a record that is not as in"),
        ("UPDATE token_entry SET time = '2026-10-02' WHERE id = 'req-4'", "4 records in the ledger, 3 in 2026-10"),
        ("UPDATE token_hour_delta SET output_tokens = 101 WHERE output_tokens = 100", "roll-ups and records differ"),
    ],
)  # fmt: skip
def test_nothing_leaves_that_is_not_exactly_what_the_archive_has(archive: Path, change: str, found: str) -> None:
    assert rewrite(change)
    entries = query(ENTRIES)
    with pytest.raises(SealError, match=found):
        left()
    assert (query(ENTRIES), archived_months(), query("SELECT * FROM token_sealed")) == (entries, [], [])


def test_the_database_refuses_to_remove_a_record_whose_key_is_not_kept(archive: Path) -> None:
    with pytest.raises(IntegrityError, match="reported usage is never changed"):
        query("DELETE FROM token_entry WHERE id = 'req-1' RETURNING key")


def test_a_month_that_was_closed_again_since_its_seal_stays(archive: Path) -> None:
    (seal,) = seals("2026-10")
    with pytest.raises(SealError, match="was sealed for close 1, and is billed by 2"):
        records_archive(closed=replace(CLOSED, close_seq=2), seal=seal, actor="ops")


def test_a_month_that_begins_within_an_hour_stays(archive: Path) -> None:
    (seal,) = seals("2026-10")
    kolkata = replace(CLOSED, window=billing_month("2026-10", "Asia/Kolkata"))
    with pytest.raises(SealError, match="within an hour of UTC"):
        records_archive(closed=kolkata, seal=seal, actor="ops")


@pytest.mark.postgresql("no month that ClickHouse has leaves it")
def test_a_record_that_came_was_closed_sealed_and_left_between_look_up_and_copy_is_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(tmp_path)
    real = tokens.sealed_among

    def meanwhile(keys: Any) -> Any:
        found = real(keys)
        monkeypatch.setattr(tokens, "sealed_among", real)
        with transaction.atomic():
            ingest_tokens(*RECORDS)
        seal = sealed_october(tmp_path / "archive")
        assert records_archive(closed=CLOSED, seal=seal, actor="ops") == 3
        return found

    monkeypatch.setattr(tokens, "sealed_among", meanwhile)
    others = [token_record(100 + number, time="2026-11-02T00:00:00+08:00") for number in range(70)]
    assert outcome(*RECORDS, *others) == (70, 3, 0)
    assert query("SELECT count(*) FROM token_entry") == [(70,)]


def test_the_command_removes_months_older_than_the_setting_and_another_puts_them_back(
    archive: Path, settings: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two months: October stays until the end of December in Shanghai."""
    monkeypatch.setattr(usage_drop.timezone, "now", lambda: datetime(2026, 12, 31, 15, 59, 59, tzinfo=UTC))
    person("lin", "finance")
    person("kim", "auditor")
    manage = Manage(capsys)
    asked = (("kim", 1, "takes an account with the right"), ("lin", 0, "is 0: records are kept for ever"),
             ("lin", 2, "not older than 2 months"))  # fmt: skip
    for by, months, printed in asked:
        settings.TOKEN_RETENTION_MONTHS = months
        assert printed in manage("usage_drop", "2026-10", "--by", by).error
    settings.TOKEN_RETENTION_MONTHS = 1
    assert manage("usage_drop", "--by", "lin").out == "2026-10: 3 records are in the archive only\n"
    assert json.loads(manage("usage_drop", "--by", "lin", "--json").out) == {"removed": {}, "faults": []}
    assert manage("usage_restore", "2026-10", "--by", "lin").out == "2026-10: 3 records are in the database again\n"
    again = manage("usage_restore", "2026-10", "--by", "lin")
    assert (again.status, again.out) == (3, "FAIL 2026-10: its records are in the ledger\n")
    entries = AuditEntry.objects.filter(action__in=("usage_drop", "usage_restore")).order_by("id")
    assert [(entry.action, entry.actor, entry.detail["rows"]) for entry in entries] == [
        ("usage_drop", "lin", 3), ("usage_restore", "lin", 3),
    ]  # fmt: skip
    (seal,) = seals("2026-10")
    flip(archive / seal.folder / "manifest.json")
    refused = manage("usage_drop", "--by", "lin")
    assert (refused.status, "FAIL 2026-10/through-0001" in refused.out) == (3, True)


def test_a_record_that_comes_back_between_two_look_ups_is_found(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for in the ledger before it is there, and among those that left after."""
    left()
    real = tokens.rows_known

    def meanwhile(keys: str) -> Any:
        found = real(keys)
        monkeypatch.setattr(tokens, "rows_known", real)
        records_restore(month="2026-10", actor="ops")
        return found

    monkeypatch.setattr(tokens, "rows_known", meanwhile)
    assert outcome(RECORDS[0], {**RECORDS[2], "output_tokens": 1}) == (0, 1, 1)


def test_usage_that_comes_in_while_records_leave_and_come_back_is_counted_once(archive: Path) -> None:
    """The same reports over and over, from another thread, until all has been away and is back."""
    (seal,) = seals("2026-10")
    over, found = threading.Event(), list[tuple[int, int, int]]()

    def report() -> None:
        number = 0
        while not over.is_set() or number < 3:
            number += 1
            others = [token_record(1000 * number + more, time="2026-11-02T00:00:00+08:00") for more in range(70)]
            found.append(outcome(*RECORDS, *(others if number % 2 else ())))
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        reports = pool.submit(report)
        for _ in range(3):
            records_archive(closed=CLOSED, seal=seal, actor="ops", step=1)
            records_restore(month="2026-10", actor="ops", step=1)
        over.set()
        reports.result()
    assert {accepted for accepted, *_ in found} <= {0, 70}
    assert {(duplicates, conflicts) for _, duplicates, conflicts in found} == {(3, 0)}
    assert query("SELECT count(*) FROM token_entry WHERE time < '2026-10-31 16:00Z'") == [(3,)]
    assert set(rollup_difference(OCTOBER).values()) == {0}
