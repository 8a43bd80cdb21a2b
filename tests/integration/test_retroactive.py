"""Prices and owners of closed time that change: the effect before, the notes after, and every close still provable."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from billing.approvals.limits import AuthorityError
from billing.closing.services.accrual import accrual_make
from billing.corrections.effect import effect_of
from billing.corrections.note_lines import NoteError
from billing.corrections.services.retroactive import (
    retroactive_acknowledge,
    retroactive_approve,
    retroactive_propose,
    retroactive_reject,
)
from billing.exports.journal import Chart
from billing.invoices.models import BillingPeriod, Correction, Invoice, Note
from billing.invoices.selectors import document_of
from billing.invoices.services.invoices import invoice_void
from billing.portal.statements import month_statements
from billing.portal.views.changes import SUMS
from billing.rating.models import RetroactiveChange
from billing.rating.services.changes import ChangeError
from billing.tenancy.models import AuditEntry, NamespaceOwnership, Team
from tests import factories
from tests.factories import SET_UP, apply, approves, ingest_allocations, money, person, signed_in, token_record
from tests.factories.commands import Manage
from tests.factories.corrections import (
    IN_NOVEMBER,
    NOVEMBER_OVER,
    account,
    bill,
    credit,
    net_by_cost_centre,
    part,
    people,
    proofs_hold,
    shown,
    whole,
)
from tests.factories.pages import rows_of
from tests.factories.usage import POLICY, sample

pytestmark = pytest.mark.django_db
OCTOBER = datetime(2026, 9, 30, 16, tzinfo=UTC)
HOUR = ("2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z")
CHEAPER = {"gpu": [{"accelerator": "NVIDIA-H800", "price": "9.5"}]}
IN_DECEMBER = datetime(2026, 12, 9, tzinfo=UTC)


def hold(number: int, gpus: int, hours: int, day: str = "2026-10-10", **changed: Any) -> dict[str, Any]:
    return factories.allocation_record(
        number, quantity=gpus, started_at=f"{day}T00:00:00Z", ended_at=f"{day}T{hours:02d}:00:00Z", observed_until=None,
        **changed,
    )  # fmt: skip


def propose(kind: str = "price", fact: dict[str, Any] | None = None, name: str = "fix", **changed: Any) -> RetroactiveChange:
    asked = {
        "kind": kind, "name": name, "fact": CHEAPER if fact is None else fact, "valid_from": OCTOBER, "valid_until": None,
        "reason": "the list price was 9.5", "evidence": "INC-17", "actor": "sam", "now": IN_NOVEMBER, **changed,
    }  # fmt: skip
    return retroactive_propose(**asked)


def approve(change: RetroactiveChange, by: str = "fin", now: datetime = IN_NOVEMBER) -> RetroactiveChange:
    return retroactive_approve(change_id=change.pk, actor=by, now=now)


def noted(change: RetroactiveChange) -> RetroactiveChange:
    """The change, of which both teams took note."""
    for team in ("cv", "nlp"):
        retroactive_acknowledge(change_id=change.pk, team=team, actor="lea", now=IN_NOVEMBER)
    return change


def effect(change: RetroactiveChange) -> list[tuple[str, str, Decimal, Decimal, Decimal]]:
    return [(m.team, m.month, m.charged, m.should_be, m.difference) for m in effect_of(change).by_team_and_month()]


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """nlp: 100 GPU-hours at 10 and tokens; cv: 21 GPU-hours. Both invoiced for October."""
    people()
    apply(for_all_tests)
    ingest_allocations(hold(1, 10, 10), hold(2, 3, 7, namespace="cv"))
    factories.ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill()


def test_each_cost_centre_that_was_charged_gets_its_own_credit_note(tmp_path: Path) -> None:
    """CC-210 was charged 1,200.00, of which 200.00 moved by hand to CC-999. Under CC-777 all of it is corrected.

    1,000.00 go back to CC-210, 200.00 to CC-999, and CC-777 pays 950.00 + 190.00.
    """
    people()
    apply(tmp_path)
    ingest_allocations(hold(1, 10, 10), hold(2, 2, 10, namespace="nlp-eval"))
    bill()
    moves_to(tmp_path, "CC-999")
    (evaluation,) = Invoice.objects.get().lines.filter(namespace="nlp-eval").values_list("position", flat=True)
    credit(whole(evaluation, rebill_price=Decimal("10")))
    moves_to(tmp_path, "CC-777")
    change = approve(propose())
    notes = Note.objects.filter(correction__change=change).order_by("kind", "sequence")
    assert [(note.number, document_of(note)["recipient"]["cost_center"], note.total) for note in notes] == [
        ("AI-INFRA-CN-2026-000002", "CC-999", money("-200.00")),
        ("AI-INFRA-CN-2026-000003", "CC-210", money("-1000.00")),
        ("AI-INFRA-RB-2026-000002", "CC-777", money("1140.00")),
    ]
    assert notes[0].correction.amount == money("1200.00")
    accrued = accrual_make(month="2026-11", chart=Chart(), actor="fin", now=IN_NOVEMBER).document["journals"]
    account_of_teams = Chart().consumer_account
    consumers = [entry for journal in accrued for entry in journal["entries"] if entry["account"] == account_of_teams]
    assert {(entry["cost_center"], entry["credit"]) for entry in consumers if entry["credit"]} == {
        ("CC-210", "200.00"), ("CC-210", "1000.00"), ("CC-999", "200.00")
    }  # fmt: skip
    bill("2026-11", NOVEMBER_OVER)
    assert net_by_cost_centre(tmp_path, "2026-10") == {"CC-210": money("1200.00"), "CC-900": money("-1200.00")}
    assert net_by_cost_centre(tmp_path, "2026-11") == {
        "CC-210": money("-1200.00"), "CC-999": money("0.00"), "CC-777": money("1140.00"), "CC-900": money("60.00")
    }  # fmt: skip
    assert proofs_hold("2026-10", "2026-11")


def test_the_effect_of_a_change_counts_goodwill_that_was_credited_before(tmp_path: Path) -> None:
    """10 hours at 10 = 100.00, of which 90.00 were given back. At 5 they are 50.00, all of which stays given back.

    The approver is shown what the notes then move: -100.00 + 90.00 and 50.00 - 50.00, which is -10.00 and not -50.00.
    """
    people()
    apply(tmp_path)
    ingest_allocations(hold(1, 1, 10), hold(2, 1, 10, namespace="cv"))
    bill()
    credit(part("90.00"), number=Invoice.objects.get(team__code="nlp").number)
    change = propose(fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "5"}]})

    finance = signed_in(person("ann", "finance"))

    def figures() -> list[list[str]]:
        rows = rows_of(finance, "/corrections/changes/?table=effects&as=csv")
        return [[row[name] for name in ("team", *SUMS)] for row in rows]

    expected = [
        ["cv", "100.00", "50.00", "0.00", "0.00", "-50.00"], ["nlp", "100.00", "50.00", "90.00", "50.00", "-10.00"],
    ]  # fmt: skip
    assert figures() == expected
    assert "Credited before" in finance.get("/corrections/changes/").content.decode()
    approve(change)
    assert figures() == expected
    notes = Note.objects.filter(correction__change=change).order_by("team__code", "kind")
    assert [(note.team.code, note.total) for note in notes] == [
        ("cv", money("-100.00")), ("cv", money("50.00")), ("nlp", money("-10.00")), ("nlp", money("0.00")),
    ]  # fmt: skip
    assert proofs_hold("2026-10")


def test_an_efficiency_adjustment_follows_the_price_and_the_owner(tmp_path: Path) -> None:
    people()
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(hold(1, 8, 1))
    sample(*HOUR, "28800", "0.10", "0.10")
    bill()
    assert account("nlp") == money("96.00")
    approve(propose())
    assert account("nlp") == money("91.20")
    change = propose("namespace", moved(), name="move")
    approve(noted(change))
    assert (account("nlp"), account("cv")) == (money("0.00"), money("91.20"))
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-11")
    call_command("export_focus", "2026-11", "--out", str(tmp_path))
    call_command("export_journal", "2026-11", "--out", str(tmp_path / "j.csv"))


def test_samples_that_came_after_the_close_count_once_somebody_lets_them(tmp_path: Path) -> None:
    """8 GPU-hours at 10 without samples: neutral, 80.00. Samples of MFU 0.60 come late: by themselves they move nothing,
    a change that is approved gives the reward of 10 per cent; samples that come after it count for nothing."""
    people()
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(hold(1, 8, 1), hold(2, 8, 1, namespace="nlp-eval"))
    bill()
    sample(*HOUR, "28800", "0.60", "0.60")
    assert account("nlp") == money("160.00")
    assert proofs_hold("2026-10")
    change = propose("efficiency", {}, name="late samples", reason="the exporter was down")
    assert effect(change) == [("nlp", "2026-10", money("0.00"), money("-8.00"), money("-8.00"))]
    approve(change)
    sample(*HOUR, "28800", "0.60", "0.60", "uid-2")
    rebill = Note.objects.get()
    assert (rebill.kind, rebill.total, rebill.correction.reason_code) == ("rebill", money("-8.00"), "mfu")
    assert shown(rebill) == [("rebill", "efficiency", "8.000000", "-1.0000", "-8.00")]
    bill("2026-11", NOVEMBER_OVER)
    assert account("nlp") == money("152.00")
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")
    call_command("export_focus", "2026-11", "--out", str(tmp_path))
    again = propose("efficiency", {}, name="later samples", reason="and of the other job", now=IN_DECEMBER)
    assert effect(again) == [("nlp", "2026-10", money("0.00"), money("-8.00"), money("-8.00"))]


def test_late_samples_of_some_days_are_refused_since_they_would_bring_in_those_of_the_others(tmp_path: Path) -> None:
    """A change from 15 October let a sample of the 10th count as well: 32.00 of penalties, where 16.00 were asked for."""
    people()
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(hold(1, 8, 1), hold(2, 8, 1, day="2026-10-20"))
    bill()
    sample(*HOUR, "28800", "0.05", "0.10")
    sample("2026-10-20T00:00:00Z", "2026-10-20T01:00:00Z", "28800", "0.05", "0.10", "uid-2")
    middle = datetime(2026, 10, 15, tzinfo=UTC)
    for bounds in ({"valid_from": middle}, {"valid_until": middle}):
        with pytest.raises(ChangeError, match="late samples count for whole months, the one from 2026-09-30T16:00"):
            propose("efficiency", {}, name="some days", **bounds)
    change = propose("efficiency", {}, name="all of it")
    assert effect(change) == [("nlp", "2026-10", money("0.00"), money("32.00"), money("32.00"))]


@pytest.mark.parametrize("price", ["9", "11"])
def test_a_large_change_takes_two_approvers_cheaper_or_dearer(tmp_path: Path, price: str) -> None:
    people()
    apply(tmp_path)
    ingest_allocations(hold(1, 8000, 20))
    bill()
    change = propose(fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": price}]})
    assert abs(effect(change)[0][-1]) == money("160000.00")
    assert approve(change).status == "proposed"
    assert approve(change).status == "proposed"
    assert not Note.objects.exists()
    assert approve(change, "head").status == "approved"
    assert Note.objects.count() == 2


def test_parts_of_a_change_are_approved_as_the_whole_would_be(tmp_path: Path) -> None:
    people()  # 40,000 GPU-hours of each of two days, at 11 instead of 10: 40,000.00 more, then another 40,000.00
    apply(tmp_path)
    ingest_allocations(hold(1, 2000, 20), hold(2, 2000, 20, day="2026-10-20"))
    bill()
    dearer, middle = {"gpu": [{"accelerator": "NVIDIA-H800", "price": "11"}]}, datetime(2026, 10, 15, tzinfo=UTC)
    first, second = propose(fact=dearer, valid_until=middle), propose(fact=dearer, name="the rest", valid_from=middle)
    assert approve(first).status == "approved"
    shown = " ".join(signed_in("fin").get("/corrections/changes/").content.decode().split())
    assert "It takes two approvers · 40,000.00 CNY were asked for or corrected before of the same team and month" in shown
    assert [approve(second, by).status for by in ("fin", "head")] == ["proposed", "approved"]


def test_nothing_closed_is_changed_by_the_set_up(tmp_path: Path) -> None:
    people()
    apply(tmp_path)
    with pytest.raises(ChangeError, match="nothing is closed yet"):
        propose()


def test_an_invoice_that_is_not_issued_is_issued_first(tmp_path: Path) -> None:
    people()
    apply(tmp_path, billing={**SET_UP["billing"], "review": "four-eyes"})
    ingest_allocations(hold(1, 10, 10))
    bill()
    change = propose()
    with pytest.raises(NoteError, match="is draft: issue it first"):
        approve(change)
    invoice_void(month="2026-10", team="nlp", reason="looked at again", actor="sam")
    with pytest.raises(NoteError, match="the draft of nlp for 2026-10 was voided: build it again and issue it"):
        approve(change)
    assert RetroactiveChange.objects.get().epoch is None


def test_closes_made_before_a_change_are_still_proven_to_the_byte(october: None) -> None:
    before = dict(Invoice.objects.values_list("number", "sha256"))
    approve(propose())
    assert dict(Invoice.objects.values_list("number", "sha256")) == before
    assert proofs_hold("2026-10")
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-11")


def test_a_change_cuts_at_its_instant_and_only_its_prices(october: None) -> None:
    """From 10 October 06:00 on: 60 GPU-hours stay at 10, 40 cost 9.5; the output tokens cost 7."""
    fact = {**CHEAPER, "tokens": [{"model": "llama-3-8b", "token_class": "output", "price": "7"}]}
    approve(propose(fact=fact, valid_from=datetime(2026, 10, 10, 6, tzinfo=UTC)))
    rebill = Note.objects.get(kind="rebill", team__code="nlp")
    assert shown(rebill) == [
        ("rebill", "gpu", "60.000000", "10.0000", "600.00"),
        ("rebill", "gpu", "40.000000", "9.5000", "380.00"),
        ("rebill", "tokens", "1.000000", "7.0000", "7.00"),
    ]
    assert account("nlp") == money("987.00")


def moves_to(directory: Path, cost_center: str) -> None:
    apply(directory, teams=[{**SET_UP["teams"][0], "cost_center": cost_center}, *SET_UP["teams"][1:]])


def moved(**changed: Any) -> dict[str, Any]:
    return {"scope": "hq-1", "name": "nlp-train", "team": "cv", **changed}


def test_an_owner_that_was_wrong_moves_the_charge_from_one_team_to_the_other(october: None) -> None:
    """nlp-train belonged to cv since 10 October 04:00: 60 GPU-hours go from nlp to cv in one transaction."""
    change = propose("namespace", moved(), valid_from=datetime(2026, 10, 10, 4, tzinfo=UTC), reason="project moved")
    assert effect(change) == [
        ("cv", "2026-10", money("0.00"), money("600.00"), money("600.00")),
        ("nlp", "2026-10", money("1000.00"), money("400.00"), money("-600.00")),
    ]
    with pytest.raises(ChangeError, match="cv, nlp has not taken note"):
        approve(change)
    with pytest.raises(AuthorityError, match="viv may not take note"):
        retroactive_acknowledge(change_id=change.pk, team="cv", actor="viv", now=IN_NOVEMBER)
    approve(noted(change))
    assert (account("nlp"), account("cv")) == (money("408.00"), money("810.00"))
    assert {note.correction.reason_code for note in Note.objects.all()} == {"ownership"}
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_an_owner_may_stay_the_new_one_from_then_on(october: None) -> None:
    change = propose("namespace", moved(onwards=True))
    approve(noted(change))
    assert NamespaceOwnership.objects.get(namespace="nlp-train").valid_from == datetime(2026, 10, 31, 16, tzinfo=UTC)
    ingest_allocations(hold(5, 1, 1, "2026-11-02"))
    bill("2026-11", NOVEMBER_OVER)
    assert Invoice.objects.get(period__month="2026-11").team.code == "cv"
    assert account("cv") == money("210") + 1000 + 10


def test_a_consumer_moves_with_its_tokens(october: None) -> None:
    change = propose("consumer", {"scope": "litellm-hq", "name": "nlp-key-1", "team": "cv"})
    approve(noted(change))
    assert (account("nlp"), account("cv")) == (money("1000.00"), money("218.00"))


def test_a_move_without_any_charge_makes_no_note_but_counts_for_late_usage(october: None) -> None:
    change = propose("namespace", moved(name="nlp-eval"))
    assert effect(change) == []
    approve(change)
    assert not Correction.objects.exists()
    ingest_allocations(hold(7, 1, 2, namespace="nlp-eval"))
    bill("2026-11", NOVEMBER_OVER)
    assert Invoice.objects.get(period__month="2026-11").team.code == "cv"
    assert proofs_hold("2026-10")


# Who, and what is refused


def test_who_asks_does_not_approve_and_finance_asks(october: None) -> None:
    with pytest.raises(AuthorityError, match="fin may not propose"):
        propose(actor="fin")
    change = propose()
    with pytest.raises(AuthorityError, match="sam asked for change fix"):
        approve(change, "sam")
    with pytest.raises(AuthorityError, match="lea may not approve"):
        approve(change, "lea")
    retroactive_reject(change_id=change.pk, actor="fin", reason="no", now=IN_NOVEMBER)
    with pytest.raises(ChangeError, match="rejected already"):
        approve(change)
    steps = AuditEntry.objects.filter(action__startswith="change_").order_by("id").values_list("actor", "action")
    assert list(steps) == [("sam", "change_propose"), ("fin", "change_reject")]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"valid_until": datetime(2026, 11, 2, tzinfo=UTC)}, "must lie in closed time"),
        ({"valid_from": datetime(2026, 11, 2, tzinfo=UTC)}, "must lie in closed time"),
        ({"reason": " "}, "needs a reason"),
        ({"name": "a+b"}, "without '\\+'"),
        ({"fact": {}}, "at least one price"),
        ({"fact": {"gpu": [{"accelerator": "B200", "price": "1"}]}}, "B200: no price list"),
        ({"fact": {"gpu": [{"accelerator": "NVIDIA-H800", "price": "-1"}]}}, "must be 0 or more"),
        ({"fact": {"gpu": [{"accelerator": "NVIDIA-H800", "price": "1.00001"}]}}, "at most 4 decimals"),
        ({"fact": {"gpu": [{"accelerator": "NVIDIA-H800", "price": "1_000"}]}}, "'1_000' is not a decimal"),
        ({"fact": {"tokens": [{"model": "x", "token_class": "input", "price": "1"}]}}, "x input: no price list"),
        ({"kind": "namespace", "fact": {"scope": "hq-1", "name": "a", "team": "zz"}}, "team 'zz'"),
    ],
)
def test_what_cannot_be_changed_is_named(october: None, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ChangeError, match=said):
        propose(**changed)


def test_a_decided_change_stays(october: None) -> None:
    approve(propose())
    for statement, why in (
        ("UPDATE rating_retroactivechange SET evidence = 'x'", "written once"),
        ("UPDATE rating_retroactivechange SET epoch = 0", "stays"),
        ("DELETE FROM rating_retroactivechange", "stays"),
        ("UPDATE approvals_proposal SET reason = 'x'", "never changes"),
    ):
        with pytest.raises(DatabaseError, match=why), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_the_database_makes_no_change_known_that_is_not_approved(october: None) -> None:
    propose()
    known = "UPDATE rating_retroactivechange SET epoch = 0, change_seq = 1"
    with pytest.raises(DatabaseError, match="is known once it is approved"), connection.cursor() as cursor:
        cursor.execute(known)


def test_finance_takes_its_own_change_back_and_nobody_takes_note_of_their_own(october: None) -> None:
    change = propose("namespace", moved(), name="move")
    with pytest.raises(ChangeError, match="sam asked for move: somebody else must take note of it for nlp"):
        retroactive_acknowledge(change_id=change.pk, team="nlp", actor="sam", now=IN_NOVEMBER)
    taken_back = retroactive_reject(change_id=change.pk, actor="sam", reason="wrong month", now=IN_NOVEMBER)
    assert (taken_back.status, taken_back.proposal.state, taken_back.proposal.decision) == (
        "rejected", "withdrawn", "wrong month"
    )  # fmt: skip


# Command


def test_the_command_shows_the_effect_before_anything_moves(
    october: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manage = Manage(capsys)
    proposed = manage(
        "retroactive_change", "price", "--name", "fix", "--gpu", "NVIDIA-H800=9.5", "--from", "2026-10-01T00:00:00+08:00",
        "--reason", "list price was 9.5", "--by", "sam",
    )  # fmt: skip
    pk = str(RetroactiveChange.objects.get().pk)
    expected = [
        f"change {pk} fix: proposed, price, list price was 9.5",
        f"  2026-10 {'cv':<20} charged {'210.00':>14} should be {'199.50':>14} difference {'-10.50':>14}",
        f"  2026-10 {'nlp':<20} charged {'1000.00':>14} should be {'950.00':>14} difference {'-50.00':>14}",
    ]
    assert (proposed.status, proposed.out.splitlines()) == (0, expected)
    refused = manage("retroactive_change", "approve", pk, "--by", approves(monkeypatch, "sam"))
    assert "somebody else must approve" in refused.error
    approved = manage("retroactive_change", "approve", pk, "--by", approves(monkeypatch, "fin"))
    assert (approved.status, approved.out.splitlines()[1:3]) == (0, expected[1:])
    assert [line.split()[0] for line in approved.out.splitlines()[3:]] == [
        f"AI-INFRA-{mark}-2026-00000{number}" for mark in ("CN", "RB") for number in (1, 2)
    ]
    assert f"{pk:>6} approved   price      fix: list price was 9.5" in manage("retroactive_change", "list").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["price", "--gpu", "H800", "--name", "a", "--from", "2026-10-01T00:00:00Z", "--reason", "r"], "=PRICE"),
        (["price", "--token", "m=1", "--name", "a", "--from", "2026-10-01T00:00:00Z", "--reason", "r"], "MODEL/CLASS=PRICE"),
        (["price", "--name", "a", "--from", "2026-10-01", "--reason", "r"], "has no offset"),
        (["show", "99"], "change 99: there is none"),
        (["approve", "99"], "change 99: there is none"),
    ],
)
def test_the_command_refuses_with_one_line(
    october: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    assert said in Manage(capsys)("retroactive_change", *arguments, "--by", approves(monkeypatch, "sam")).error


# Pages


@pytest.mark.filterwarnings("ignore:No directory at:UserWarning")
def test_teams_take_note_on_the_page_and_an_approver_brings_it_about(october: None) -> None:
    person("tom", "lead", team="nlp")
    person("kim", "lead", team="cv")
    change = propose("namespace", moved(), reason="project moved")
    tom, kim, fin = signed_in("tom"), signed_in("kim"), signed_in("fin")
    page = tom.get("/corrections/changes/").content.decode()
    assert "Take note for nlp" in page
    assert "Take note for cv" not in page  # other teams' money is not shown
    assert ">Approve<" not in page
    steps = f"/corrections/changes/{change.pk}/"
    refused = fin.post(steps + "approve/")
    assert (refused.status_code, "has not taken note yet" in refused.content.decode()) == (409, True)
    assert tom.post(steps + "acknowledge/", {"team": "cv"}).status_code == 409
    assert tom.post(steps + "acknowledge/", {"team": "nlp"}).status_code == 302
    assert kim.post(steps + "acknowledge/", {"team": "cv"}).status_code == 302
    assert fin.post(steps + "approve/").status_code == 302
    assert (account("nlp"), account("cv")) == (money("8.00"), money("1210.00"))
    assert "approved by fin" in kim.get("/corrections/changes/").content.decode()
    assert fin.post(steps + "other/").status_code == 404


@pytest.mark.filterwarnings("ignore:No directory at:UserWarning")
def test_a_line_of_a_corrected_price_opens_into_its_usage(october: None) -> None:
    approve(propose())
    ingest_allocations(hold(3, 4, 3))
    bill("2026-11", NOVEMBER_OVER)
    statement = month_statements(BillingPeriod.objects.get(month="2026-11"), Team.objects.filter(code="nlp")).statements[0]
    page = signed_in("sam").get(f"/teams/nlp/lines/{statement.lines[0].digest}/?month=2026-11").content.decode()
    assert "uid-3" in page
    assert "114.00" in page


def sent(**changed: str) -> dict[str, str]:
    return {"name": "fix", "valid_from": "2026-10-01", "reason": "the list price was 9.5", "evidence": "INC-17", **changed}


PRICE = {"kind": "price", "accelerator": "NVIDIA-H800", "price": "9.5"}
OWNER = {"kind": "namespace", "scope": "hq-1", "thing": "nlp-train", "team": "cv", "onwards": "on"}


@pytest.mark.parametrize(("fields", "fact"), [
    (PRICE, {"gpu": [{"accelerator": "NVIDIA-H800", "resource": "", "price": "9.5000"}], "tokens": []}),
    ({"kind": "price", "model": "llama-3-8b", "token_class": "output", "price": "7"},
     {"gpu": [], "tokens": [{"model": "llama-3-8b", "token_class": "output", "price": "7.0000"}]}),
    (OWNER, {"scope": "hq-1", "name": "nlp-train", "team": "cv", "onwards": True}),
    ({"kind": "efficiency"}, {}),
])  # fmt: skip
def test_finance_proposes_a_change_by_form(october: None, fields: dict[str, str], fact: dict[str, Any]) -> None:
    answer = signed_in("sam").post("/corrections/changes/new/", sent(**fields))
    assert answer.status_code == 302
    change = RetroactiveChange.objects.get()
    assert (change.kind, change.fact, change.valid_from, change.requested_by) == (fields["kind"], fact, OCTOBER, "sam")
    assert (change.reason, change.evidence, change.status) == ("the list price was 9.5", "INC-17", "proposed")
    assert "fix" in signed_in("sam").get("/corrections/changes/").content.decode()


@pytest.mark.parametrize(("fields", "said"), [
    ({**PRICE, "price": "dear"}, "Price that was due &#x27;dear&#x27;: is not a decimal"),
    ({**PRICE, "price": ""}, "Price that was due: is missing"),
    ({**PRICE, "model": "llama-3-8b"}, "one price at a time"),
    ({**PRICE, "accelerator": ""}, "one price at a time"),
    ({"kind": "price", "model": "llama-3-8b", "price": "7"}, "Tokens: is missing"),
    ({**PRICE, "accelerator": "NVIDIA-B9"}, "NVIDIA-B9: no price list in force then has a price of it"),
    ({**OWNER, "team": ""}, "Team: is missing"),
    ({**OWNER, "thing": ""}, "Namespace or consumer: is missing"),
    ({**PRICE, "valid_from": "2026-12-01"}, "must lie in closed time"),
])  # fmt: skip
def test_a_form_of_a_change_is_refused_beside_its_field(october: None, fields: dict[str, str], said: str) -> None:
    answer = signed_in("sam").post("/corrections/changes/new/", sent(**fields))
    assert (answer.status_code, RetroactiveChange.objects.count()) == (409, 0)
    assert said in answer.content.decode()
