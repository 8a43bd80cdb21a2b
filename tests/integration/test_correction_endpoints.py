"""Corrections through the command, the API and the pages; issued by many at once and killed at any statement."""

import json
import os
import signal
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from billing.corrections.services.corrections import correction_approve, correction_issue
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.models import Correction, Invoice, Note, NumberSeries
from tests import factories
from tests.factories import allocation_record, apply, approves, ingest_allocations, money, person, signed_in
from tests.factories.api import program
from tests.factories.commands import Manage
from tests.factories.corrections import (
    FIRST,
    IN_NOVEMBER,
    NOVEMBER_OVER,
    bill,
    billed_october,
    credit,
    draft,
    part,
    whole,
)
from tests.factories.kills import die_at

pytestmark = pytest.mark.filterwarnings("ignore:No directory at:UserWarning")


@pytest.fixture
def billed(tmp_path: Path) -> None:
    billed_october(tmp_path)


@pytest.fixture
def october(db: None, billed: None) -> None:
    """100 GPU-hours at 10 on one line."""


@pytest.fixture
def committed(transactional_db: None, billed: None) -> None:
    """The same, where tests commit for real."""


# Command


def test_the_command_asks_approves_and_issues(
    october: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manage = Manage(capsys)
    drafted = manage(
        "credit_note", "draft", FIRST, "--line", "1", "--rebill-price", "9.5", "--code", "price", "--reason",
        "list price was 9.5", "--evidence", "INC-17", "--by", "sam", "--json",
    )  # fmt: skip
    found = json.loads(drafted.out)
    assert (drafted.status, found["status"], found["amount"], [note["total"] for note in found["notes"]]) == (
        0, "draft", "1000.00", ["-1000.00", "950.00"],
    )  # fmt: skip
    number = str(found["id"])
    refused = manage("credit_note", "approve", number, "--by", approves(monkeypatch, "sam"))
    assert "somebody else must approve" in refused.error
    assert manage("credit_note", "issue", number, "--by", "sam").status == 2
    assert manage("credit_note", "approve", number, "--by", approves(monkeypatch, "lea")).status == 0
    assert manage("credit_note", "issue", number, "--by", "sam").out.splitlines() == [
        f"correction {number}: issued, price, list price was 9.5",
        f"  {'AI-INFRA-CN-2026-000001':<28} {'nlp':<20} {'-1000.00':>16} CNY",
        f"  {'AI-INFRA-RB-2026-000001':<28} {'nlp':<20} {'950.00':>16} CNY",
    ]
    assert json.loads(manage("credit_note", "list", "--json").out)["corrections"][0]["status"] == "issued"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["draft", "X", "--line", "1", "--code", "price", "--reason", "r"], "document 'X'"),
        (["draft", FIRST, "--line", "x", "--code", "price", "--reason", "r"], "must be a position"),
        (["draft", FIRST, "--line", "1=NaN", "--code", "price", "--reason", "r"], "is not a number"),
        (["draft", FIRST, "--line", "1", "--code", "taste", "--reason", "r"], "invalid choice: 'taste'"),
        (["draft", FIRST, "--line", "1", "--code", "price", "--reason", " "], "needs a reason"),
        (["approve", "77"], "correction 77: there is none"),
    ],
)
def test_the_command_refuses_with_one_line(
    october: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    assert said in Manage(capsys)("credit_note", *arguments, "--by", approves(monkeypatch, "sam")).error


# API


def test_the_api_gives_notes_and_their_files_to_who_may_see_the_team(october: None) -> None:
    credit(whole(rebill_price=Decimal("9.5")))
    cv, scenario = program("invoices:read", team="cv"), program("invoices:read")

    def get(path: str, reader: Client) -> Any:
        return reader.get(f"/api/v1/{path}")

    listed = get("credit-notes?month=2026-11&team=nlp", scenario).json()["results"]
    assert [(note["number"], note["kind"], note["total"]) for note in listed] == [
        ("AI-INFRA-CN-2026-000001", "credit", "-1000.00"),
        ("AI-INFRA-RB-2026-000001", "rebill", "950.00"),
    ]
    assert [note["kind"] for note in get("credit-notes?kind=rebill", scenario).json()["results"]] == ["rebill"]
    assert get("credit-notes?kind=x", scenario).status_code == 400
    assert get("credit-notes?month=2026-10", scenario).json()["results"] == []
    assert get("credit-notes", cv).json()["results"] == []
    one = get("credit-notes/AI-INFRA-CN-2026-000001.json", scenario).json()
    assert one["lines"][0]["credits"] == {"document": FIRST, "position": 1}
    assert one["sha256"] == Note.objects.get(number="AI-INFRA-CN-2026-000001").sha256
    assert get("credit-notes/AI-INFRA-CN-2026-000001", cv).status_code == 404
    assert get("credit-notes/AI-INFRA-CN-2026-000001.pdf", scenario).content.startswith(b"%PDF")


# Pages


def test_finance_corrects_a_line_on_the_pages_and_the_team_sees_it(october: None) -> None:
    person("tom", "lead", team="nlp")
    invoice = Invoice.objects.get()
    sam, lea, tom = signed_in("sam"), signed_in("lea"), signed_in("tom")
    address = f"/corrections/new/{invoice.pk}/"
    form = {"code": "price", "reason": "list price was 9.5", "evidence": "INC-17"}
    assert "Correct lines" in sam.get(f"/invoices/{invoice.pk}/").content.decode()
    refused = sam.post(address, {**form, "amount-1": "1000.01"})
    assert (refused.status_code, "is not between 0.01 and the 1000.00 left" in refused.content.decode()) == (422, True)
    assert sam.post(address, {**form, "amount-1": "ten"}).status_code == 422
    half = sam.post(address, {**form, "amount-1": "50", "rebill_price": "9.5"})  # the price would have been passed over
    assert (half.status_code, "only a whole line is billed again" in half.content.decode()) == (422, True)
    assert sam.post(address, {**form, "whole": "1", "rebill_price": "9.5"}).status_code == 302
    correction = Correction.objects.get()
    steps = f"/corrections/{correction.pk}/"
    assert "It takes a second person of finance or an approver" in sam.get("/corrections/").content.decode()
    assert "somebody else must approve" in sam.post(steps + "approve/").content.decode()
    assert lea.post(steps + "approve/").status_code == 302
    assert sam.post(steps + "issue/").status_code == 302
    page = tom.get("/corrections/").content.decode()
    assert "AI-INFRA-CN-2026-000001" in page
    assert "AI-INFRA-RB-2026-000001" in page
    note = Note.objects.get(kind="credit")
    shown = tom.get(f"/notes/{note.pk}/").content.decode()
    assert "−1,000.00" in shown
    assert "list price was 9.5" in shown
    assert tom.get(f"/notes/{note.pk}/download.xlsx").content.startswith(b"PK")
    assert tom.get(f"/notes/{note.pk}/download.exe").status_code == 404
    assert "AI-INFRA-CN-2026-000001" in tom.get(f"/invoices/{invoice.pk}/").content.decode()


def test_a_correction_is_dropped_with_a_reason(october: None) -> None:
    correction = draft(part("1.00"))
    sam = signed_in("sam")
    assert sam.post(f"/corrections/{correction.pk}/void/").status_code == 409
    assert sam.post(f"/corrections/{correction.pk}/void/", {"reason": "asked twice"}).status_code == 302
    assert Correction.objects.get().status == "void"
    assert sam.post(f"/corrections/{correction.pk}/other/").status_code == 404


# At once, and killed


def forked(work: Callable[[], Any], statement: int | None = None, *, executed: bool = False) -> int:
    """A copy of this process that does the work, and kills itself at a statement; its exit status."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        try:
            with connection.execute_wrapper(die_at(statement or 0, executed=executed)):
                work()
        finally:
            os._exit(0)
    return pid


def assert_sound_series() -> None:
    for kind, mark in (("credit", "CN"), ("rebill", "RB")):
        notes = list(Note.objects.filter(kind=kind, number__isnull=False).order_by("sequence"))
        assert [note.number for note in notes] == [f"AI-INFRA-{mark}-2026-{n:06d}" for n in range(1, len(notes) + 1)]
        previous = ""
        for note in notes:
            assert note.sha256 == sha256(note.document.encode()).hexdigest()
            assert note.previous_sha256 == previous
            previous = note.sha256
        series = NumberSeries.objects.filter(kind=kind, last_number__gt=0).first()
        assert (series.last_number, series.last_sha256) == (len(notes), previous) if series else not notes


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_an_issue_killed_at_each_statement_in_turn_leaves_all_notes_or_none(committed: None, executed: bool) -> None:
    correction = draft(whole(rebill_price=Decimal("9.5")))
    correction_approve(correction_id=correction.pk, actor="fin", now=IN_NOVEMBER)
    for statement in range(1, 60):
        pid = forked(
            lambda: correction_issue(correction_id=correction.pk, actor="fin", now=IN_NOVEMBER), statement,
            executed=executed,
        )  # fmt: skip
        os.waitpid(pid, 0)
        issued = Note.objects.filter(number__isnull=False).count()
        assert issued in (0, 2)
        assert_sound_series()
        if issued:
            break
    assert statement > 20
    correction_issue(correction_id=correction.pk, actor="fin", now=IN_NOVEMBER)
    assert Note.objects.filter(number__isnull=False).count() == 2
    assert_sound_series()


def test_a_change_of_closed_time_killed_at_any_statement_is_a_fact_with_its_notes_or_nothing(committed: None) -> None:
    change = retroactive_propose(
        kind="price", name="fix", fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "9.5"}]}, evidence="",
        valid_from=factories.SHANGHAI_OCTOBER[0], valid_until=None, reason="r", actor="sam", now=IN_NOVEMBER,
    )  # fmt: skip
    killed = 0
    for statement in range(1, 160, 3):
        pid = forked(
            lambda: retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER), statement,
            executed=statement % 2 == 0,
        )  # fmt: skip
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        change.refresh_from_db()
        issued = Note.objects.filter(number__isnull=False).count()
        assert (change.status, Note.objects.count(), issued) in (("proposed", 0, 0), ("approved", 2, 2))
        assert_sound_series()
        if change.status == "approved":
            break
    assert killed > 20
    if change.status == "proposed":
        retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    assert sum(note.total for note in Note.objects.all()) == money("-50.00")


def test_of_many_who_credit_the_same_line_at_once_one_succeeds(committed: None) -> None:
    pids = [forked(lambda: draft(part("600.00"))) for _ in range(12)]
    for pid in pids:
        os.waitpid(pid, 0)
    assert [correction.amount for correction in Correction.objects.all()] == [money("600.00")]


def test_many_issue_at_once_and_every_number_is_taken_once(committed: None, tmp_path: Path) -> None:
    end = "2026-10-10T01:00:00Z"
    owners = [{"cluster": "hq-1", "namespace": f"t{n}", "team": f"t{n}"} for n in range(20)]
    apply(tmp_path, teams=[{"code": f"t{n}", "name": f"T{n}"} for n in range(20)], ownership=owners, consumers=None)
    ingest_allocations(
        *(
            allocation_record(
                100 + n, namespace=f"t{n}", started_at="2026-11-10T00:00:00Z", ended_at=end.replace("10-10", "11-10"),
                observed_until=None,
            )
            for n in range(20)
        )
    )  # fmt: skip
    bill("2026-11", NOVEMBER_OVER)
    numbers = Invoice.objects.filter(period__month="2026-11").order_by("sequence").values_list("number", flat=True)
    corrections = [draft(part("1.00"), number=str(number)) for number in numbers]
    for correction in corrections:
        correction_approve(correction_id=correction.pk, actor="lea", now=IN_NOVEMBER)

    def work(pk: int) -> Callable[[], Any]:
        return lambda: correction_issue(correction_id=pk, actor="lea", now=NOVEMBER_OVER)

    pids = [forked(work(item.pk), 9 if twice and index % 3 == 0 else None)
            for twice in (True, False) for index, item in enumerate(corrections)]  # fmt: skip
    for pid in pids:
        os.waitpid(pid, 0)
    assert Note.objects.filter(number__isnull=False).count() == 20
    assert_sound_series()
    assert sum(note.total for note in Note.objects.all()) == money("-20.00")
