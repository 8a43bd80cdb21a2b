"""Many callers at once, killed at any statement: numbers without gap, one document per team, an unbroken chain.

Most callers are forks of this process, which start in milliseconds and run the same command; some are real `manage.py`
processes. Whoever is to die kills itself with SIGKILL at a statement chosen beforehand, before or after PostgreSQL
executed it, so that every point of the transaction is hit and not only those that a clock happens to meet.
"""

import json
import os
import random
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from billing.closing.services.closing import period_close
from billing.closing.services.operations import operation_request, operation_run
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice, NumberSeries, Operation
from billing.rating.models import Charge
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from billing.usage.models import Close
from tests.cli import PROJECT
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.kills import die_at
from tests.hypothesis_profile import EXPLORES, examples

MONTH = "2024-10"
TEAMS = 40
CALLS = examples(200)
EACH = 1 if EXPLORES else 2
"""At which statements a caller is killed: at every one, or at odd ones before and at even ones after they are executed."""


@pytest.fixture
def ledger(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database in which this test commits for real, and issues by batches of three, so that callers mix."""
    monkeypatch.setattr("billing.invoices.services.invoices.ISSUE_BATCH", 3)


@pytest.fixture
def used(ledger: None, tmp_path: Path) -> None:
    """Forty teams; team n held n GPUs for one hour of October 2024, at 10 an hour."""
    codes = [f"team-{number:02d}" for number in range(1, TEAMS + 1)]
    price = {**SET_UP["price_versions"][0], "valid_from": "2024-01-01T00:00:00+08:00"}
    apply(
        tmp_path, platform=None, price_versions=[price],
        teams=[{"code": code, "name": code.title()} for code in codes],
        ownership=[{"cluster": "hq-1", "namespace": code, "team": code} for code in codes],
        consumers=[{"source": "litellm-hq", "consumer": "nlp-key-1", "team": "team-01"}],
    )  # fmt: skip
    ingest_allocations(
        *(
            allocation_record(
                number, namespace=code, quantity=number, started_at="2024-10-10T00:00:00Z",
                ended_at="2024-10-10T01:00:00Z", observed_until=None,
            )
            for number, code in enumerate(codes, start=1)
        )
    )  # fmt: skip


@pytest.fixture
def closed(used: None) -> None:
    period_close(month=MONTH, actor="ops", now=datetime(2024, 11, 2, tzinfo=UTC))


def fork(command: str, gate: int, statement: int | None, executed: bool) -> int:
    """Start a copy of this process that runs the command once the gate opens; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.read(gate, 1)
        connection.ensure_connection()
        if statement is None:
            call_command(command, MONTH)
        else:
            with connection.execute_wrapper(die_at(statement, executed=executed)):
                call_command(command, MONTH)
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        os._exit(status)


def kill_at_each(command: str, statements: range, executed: bool) -> None:
    """Run the command for each of the statements, at which it dies where it comes as far."""
    connections.close_all()
    for statement in statements:
        gate, opener = os.pipe()
        pid = fork(command, gate, statement, executed)
        os.write(opener, b"!")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, -9)
        os.close(gate)
        os.close(opener)


def call_many(command: str, calls: int, *, doomed: int, seed: int, last_statement: int) -> list[int]:
    """Run the command that many times, all at once; the exit status of each, -9 for the killed."""
    chance = random.Random(seed)
    fates = [(chance.randint(1, last_statement), chance.random() < 0.5) for _ in range(doomed)]
    plan: list[tuple[int | None, bool]] = [*fates, *((None, False) for _ in range(calls - doomed))]
    chance.shuffle(plan)
    connections.close_all()
    gate, opener = os.pipe()
    pids = [fork(command, gate, statement, executed) for statement, executed in plan]
    os.write(opener, b"!" * calls)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.close(gate)
    os.close(opener)
    return statuses


def assert_sound_series(issued: int | None = None) -> None:
    """Contiguous numbers, one document per team, each hash over its text and the hash before it."""
    documents = list(Invoice.objects.filter(status="issued").order_by("sequence").select_related("team"))
    if issued is not None:
        assert len(documents) == issued
    assert [item.sequence for item in documents] == list(range(1, len(documents) + 1))
    assert [item.number for item in documents] == [f"AI-INFRA-2024-{n:06d}" for n in range(1, len(documents) + 1)]
    assert len({item.team_id for item in documents}) == len(documents)
    previous = ""
    for item in documents:
        text = json.loads(item.document)
        assert item.sha256 == sha256(item.document.encode()).hexdigest()
        assert (item.previous_sha256, text["previous_sha256"], text["number"]) == (previous, previous or None, item.number)
        assert item.total == int(item.team.code.removeprefix("team-")) * 10
        previous = item.sha256
    series = NumberSeries.objects.first()
    assert (series.last_number, series.last_sha256) == (len(documents), previous) if series else documents == []
    audited = AuditEntry.objects.filter(action="invoice_issue").values_list("subject", flat=True)
    assert sorted(audited) == [item.number for item in documents]


def test_many_calls_of_which_a_third_is_killed_issue_each_invoice_once(closed: None) -> None:
    statuses = call_many("invoice_issue", CALLS, doomed=CALLS // 3, seed=20241031, last_statement=120)
    assert set(statuses) <= {0, -9}
    assert statuses.count(0) >= CALLS - CALLS // 3
    assert statuses.count(-9) > 0
    assert_sound_series(TEAMS)
    assert all(proof.holds for proof in period_verify(month=MONTH))


def test_when_every_caller_dies_the_next_one_finishes(closed: None) -> None:
    """No caller lives: what they leave is a sound series at any moment, which one more call completes."""
    statuses = call_many("invoice_issue", 60, doomed=60, seed=7, last_statement=40)
    assert statuses.count(-9) > 0
    assert_sound_series()
    call_command("invoice_issue", MONTH)
    assert_sound_series(TEAMS)


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_a_caller_killed_at_each_statement_in_turn_leaves_no_gap(closed: None, executed: bool) -> None:
    kill_at_each("invoice_issue", range(1 + executed, 41, EACH), executed)
    assert_sound_series()
    call_command("invoice_issue", MONTH)
    assert_sound_series(TEAMS)


def test_an_operation_whose_runner_died_is_finished_by_whoever_runs_it_next(closed: None) -> None:
    operation = operation_request(kind="issue", month=MONTH, actor="ops")
    connections.close_all()
    pid = os.fork()
    if not pid:
        with connection.execute_wrapper(die_at(30, executed=True)):
            operation_run(operation_id=operation.pk)
        os._exit(98)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    operation.refresh_from_db()
    assert operation.status == Operation.Status.PENDING
    assert operation_run(operation_id=operation.pk).status == Operation.Status.DONE
    assert_sound_series(TEAMS)


def test_real_processes_issue_each_invoice_once(closed: None) -> None:
    """`manage.py invoice_issue` as somebody's shell would start it, some of them killed while they work."""
    facts = connection.settings_dict
    account = f"{quote(facts['USER'])}:{quote(facts['PASSWORD'])}"
    where = f"{facts['HOST'] or '127.0.0.1'}:{facts['PORT'] or 5432}"
    url = f"postgresql://{account}@{where}/{quote(facts['NAME'])}"
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "billing.settings.base"}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), "invoice_issue", MONTH, "--json"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT,
        )
        for _ in range(9)
    ]  # fmt: skip
    killer = threading.Thread(target=_kill_when_the_first_number_is_taken, args=(started[:3],))
    killer.start()
    answers = [process.communicate(timeout=120) for process in started]
    killer.join()
    statuses = [process.returncode for process in started]
    assert set(statuses) <= {0, -9}, answers
    assert statuses[3:] == [0] * 6
    assert_sound_series(TEAMS)
    for out, err in answers[3:]:
        assert err == b""
        assert [item["number"] for item in json.loads(out)["invoices"]] == [
            f"AI-INFRA-2024-{n:06d}" for n in range(1, TEAMS + 1)
        ]


def _kill_when_the_first_number_is_taken(processes: list[subprocess.Popen[bytes]]) -> None:
    """Waits for the work to begin, not for a time; everybody may be done by then, which is fine."""
    while not NumberSeries.objects.filter(last_number__gt=0).exists():
        if all(process.poll() is not None for process in processes):
            break
    for process in processes:
        process.kill()
    connections.close_all()


# Closing, by many at once


def test_many_closes_at_once_of_which_half_is_killed_bill_the_month_once(used: None) -> None:
    statuses = call_many("period_close", 40, doomed=20, seed=11, last_statement=60)
    assert set(statuses) <= {0, -9}
    assert statuses.count(0) >= 20
    assert statuses.count(-9) > 0
    assert (BillingPeriod.objects.get().status, Close.objects.count()) == ("closed", 1)
    assert (Invoice.objects.count(), Charge.objects.count()) == (TEAMS, TEAMS)
    assert sum(Invoice.objects.values_list("total", flat=True)) == Decimal(10 * TEAMS * (TEAMS + 1) // 2)
    assert AuditEntry.objects.filter(action="period_close").count() == 1
    assert all(proof.holds for proof in period_verify(month=MONTH))


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_a_close_killed_at_each_statement_in_turn_is_finished_by_the_next(used: None, executed: bool) -> None:
    kill_at_each("period_close", range(1 + executed, 61, EACH), executed)
    period_close(month=MONTH, actor="ops", now=datetime(2024, 11, 2, tzinfo=UTC))
    assert (Close.objects.count(), Invoice.objects.count(), Charge.objects.count()) == (1, TEAMS, TEAMS)
    assert all(proof.holds for proof in period_verify(month=MONTH))


def test_usage_that_arrives_while_the_month_is_closed_is_billed_in_exactly_one_close(used: None) -> None:
    """Writers never pause; whatever the cut-off did not see is a correction of the next month."""
    writers, batches, size = 6, 12, 20
    start = threading.Barrier(writers + 1)
    at = datetime(2024, 10, 20, tzinfo=UTC)
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            start.wait(timeout=30)
            for batch in range(batches):
                numbers = [(writer * batches + batch) * size + index for index in range(size)]
                ingest_tokens(
                    *(token_record(n, time=(at + timedelta(seconds=n)).isoformat(), output_tokens=1000) for n in numbers)
                )
                ingest_allocations(
                    *(
                        allocation_record(
                            1000 + n, namespace="team-02", quantity=1, started_at="2024-10-20T00:00:00Z",
                            ended_at="2024-10-20T00:01:00Z", observed_until=None,
                        )
                        for n in numbers
                    )
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - handed to the test
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    start.wait(timeout=30)
    period_close(month=MONTH, actor="ops", now=datetime(2024, 11, 2, tzinfo=UTC))
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    period_close(month="2024-11", actor="ops", now=datetime(2024, 12, 2, tzinfo=UTC))
    total = writers * batches * size
    output = Charge.objects.filter(token_class="output").values_list("usage_quantity", flat=True)
    assert sum(output) == 1000 * total
    held = Charge.objects.filter(namespace="team-02").values_list("usage_quantity", flat=True)
    assert sum(held) == 2 * 3_600_000_000 + total * 60_000_000
    assert set(Charge.objects.filter(close_seq=2).values_list("correction", flat=True)) <= {True}
    assert all(proof.holds for month in (MONTH, "2024-11") for proof in period_verify(month=month))


def test_an_owner_who_changes_while_the_month_is_closed_changes_both_or_neither(used: None, tmp_path: Path) -> None:
    """A back-dated change is written, the close runs, the change is committed: the bill follows from what is stored."""
    written, go_on = threading.Event(), threading.Event()
    refused: list[str] = []

    def change() -> None:
        try:
            with transaction.atomic():
                moved = {"cluster": "hq-1", "namespace": "team-01", "team": "team-02", "valid_from": "2024-10-01"}
                try:
                    apply(tmp_path, **{**dict.fromkeys(SET_UP), "ownership": [moved]})
                except SetUpFileError as error:
                    refused.append(str(error))
                written.set()
                go_on.wait(timeout=60)
        finally:
            written.set()
            connections.close_all()

    def close() -> None:
        try:
            period_close(month=MONTH, actor="ops", now=datetime(2024, 11, 2, tzinfo=UTC))
        finally:
            connections.close_all()

    changing = threading.Thread(target=change)
    changing.start()
    assert written.wait(timeout=60)
    closing = threading.Thread(target=close)
    closing.start()
    while closing.is_alive() and not somebody_waits_for_a_lock():
        closing.join(timeout=0.01)
    go_on.set()
    changing.join(timeout=60)
    closing.join(timeout=60)
    assert refused == []
    assert BillingPeriod.objects.get().status == "closed"
    assert all(proof.holds for proof in period_verify(month=MONTH))
    assert {code: str(total) for code, total in Invoice.objects.values_list("team__code", "total")}["team-02"] == "30.00"


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory')")
        return bool(cursor.fetchone()[0])
