"""The inbox: what waits for whom, with the money at stake and the page that ends it; and the digest of the day."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from billing.approvals.kinds import KINDS as PROPOSALS
from billing.budgets.models import Alert, Channel, CostAnomaly, Delivery
from billing.closing.services.closing import period_close
from billing.corrections.services.corrections import correction_approve
from billing.corrections.services.disputes import dispute_ask_evidence, dispute_escalate, dispute_reject
from billing.explorer.models import ReportSchedule, SavedView
from billing.inbox import decisions
from billing.inbox.findings import Finding, stored
from billing.inbox.models import Digest, MonthFindings
from billing.inbox.selectors import Inbox, inbox_of
from billing.inbox.services import digest_choose, digests_send, findings_refresh, month_findings
from billing.inbox.services.digests import message_of
from billing.invoices.models import BillingPeriod, DocumentMail, Invoice, JournalExport, Operation
from billing.invoices.services.invoices import invoice_rebuild, invoice_void
from billing.tenancy.access import access_of
from billing.tenancy.models import ApiToken, AuditEntry, BillingSetup, Team
from billing.tenancy.selectors import billing_setup
from billing.tenancy.tokens import api_token_create
from tests.factories import apply, ingest_allocations, person, signed_in, watched
from tests.factories.api import bearer
from tests.factories.corrections import draft, part
from tests.factories.disputes import FRIDAY, october, opened
from tests.factories.months import NOVEMBER_OVER, OCTOBER_OVER
from tests.factories.pages import text_of
from tests.factories.usage import hold

__all__ = ["october"]
pytestmark = pytest.mark.django_db
Shown = list[tuple[str, str, str, Decimal | None]]


def waits(name: str, now: datetime = FRIDAY) -> Shown:
    """Kind, title, team and money of all that waits for somebody."""
    found = inbox_of(User.objects.get(username=name), now)
    return [(group.kind.name, str(item.title), item.team, item.amount) for group in found.groups for item in group.items]


def money(text: str) -> Decimal:
    return Decimal(text)


@pytest.fixture
def stray(tmp_path: Path) -> None:
    """In October nlp used 25.00, and a namespace that nobody owns 12 GPU-hours, at list price 120.00."""
    apply(tmp_path)
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1),
        hold(3, "2026-10-10T00:00:00Z", "2026-10-10T12:00:00Z", quantity=1, namespace="stray"),
    )  # fmt: skip
    for name, role in (("ada", "admin"), ("sam", "finance"), ("fin", "approver")):
        person(name, role)
    person("tom", "lead", team="nlp")


def test_every_kind_of_proposal_has_its_words_and_its_page() -> None:
    assert set(decisions.PROPOSALS) == set(PROPOSALS) - {"poem"}


def test_drafts_wait_for_somebody_else_than_who_closed_then_to_be_issued(tmp_path: Path) -> None:
    apply(tmp_path)
    BillingSetup.objects.update(review="four-eyes")
    for name, role in (("sam", "finance"), ("fin", "approver"), ("ops", "approver")):
        person(name, role)
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert waits("fin") == [("invoice_review", "1 invoice of 2026-10", "", money("25.00"))]
    assert waits("ops") == []
    Invoice.objects.update(status="approved", approved_by="fin")
    assert waits("fin") == []
    assert waits("sam") == [("invoice_issue", "1 invoice of 2026-10", "", money("25.00"))]


def test_usage_without_owner_waits_for_an_admin_with_what_it_would_be_billed(stray: None) -> None:
    assert findings_refresh(now=OCTOBER_OVER) == 2  # October, which nobody closed, and November
    assert ("unowned", "Namespace without owner: hq-1/stray", "", money("120.00")) in waits("ada")
    assert [row for row in waits("sam") if row[0] == "unowned"] == waits("fin") == waits("tom") == []


def test_a_finding_keeps_the_instant_at_which_it_was_found_first(stray: None) -> None:
    findings_refresh(now=OCTOBER_OVER)
    findings_refresh(now=OCTOBER_OVER + timedelta(hours=5))
    groups = inbox_of(User.objects.get(username="ada"), FRIDAY).groups
    (item,) = next(group.items for group in groups if group.kind.name == "unowned")
    assert (item.since, item.quantity, item.unit) == (OCTOBER_OVER, Decimal(43_200), "gpu_seconds")
    assert item.link == "/ownership/claim/?kind=namespace&place=hq-1&name=stray&valid_from=2026-10-01"


def test_a_month_that_nothing_blocks_waits_to_be_closed_and_is_gone_afterwards(tmp_path: Path) -> None:
    apply(tmp_path)
    person("sam", "finance")
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1))
    watched(OCTOBER_OVER)
    findings_refresh(now=OCTOBER_OVER)
    assert ("close", "2026-10 can be closed", "", None) in waits("sam")
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    findings_refresh(now=OCTOBER_OVER)
    assert "close" not in {row[0] for row in waits("sam")}
    assert list(MonthFindings.objects.values_list("month", flat=True)) == ["2026-11"]


def test_money_that_is_known_in_part_is_called_the_least(stray: None) -> None:
    """12 GPU-hours of nobody are 120.00, what those of a second one on a device without a price are worth is unknown."""
    ingest_allocations(
        hold(4, "2026-10-10T00:00:00Z", "2026-10-10T12:00:00Z", quantity=1, namespace="other", accelerator="NVIDIA-B200")
    )
    findings_refresh(now=FRIDAY)
    _, text = message_of(inbox_of(User.objects.get(username="ada"), FRIDAY), billing_setup())
    assert "Usage without owner (2): 120.00 or more CNY" in text.splitlines()
    assert "120.00 or more" in text_of(signed_in("ada"), "/inbox/")


@pytest.mark.usefixtures("stray")
def test_a_month_that_cannot_be_judged_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    judge = month_findings.build_report

    def failing(period: BillingPeriod, **how: Any) -> Any:
        if period.month == "2026-10":
            raise ArithmeticError("too large")
        return judge(period, **how)

    monkeypatch.setattr(month_findings, "build_report", failing)
    findings_refresh(now=OCTOBER_OVER)
    assert list(MonthFindings.objects.values_list("month", flat=True)) == ["2026-11"]
    assert "ArithmeticError: too large" in caplog.text


def test_a_dispute_waits_for_finance_and_not_for_who_opened_it(october: str) -> None:
    opened(october, amount="100.00")
    assert waits("sam") == [("dispute", f"Dispute of {october}", "nlp", money("100.00"))]
    assert waits("tom") == waits("fin") == waits("viv") == []


def test_evidence_that_finance_asks_for_waits_for_the_lead_of_the_team_alone(october: str) -> None:
    dispute = opened(october, amount="100.00")
    dispute_ask_evidence(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="which node?")
    assert waits("tom") == [("evidence", f"Dispute of {october}", "nlp", money("100.00"))]
    assert waits("sam") == waits("kim") == []


def test_an_escalated_dispute_waits_for_an_approver(october: str) -> None:
    dispute = opened(october, amount="100.00")
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="it ran")
    assert waits("sam") == waits("fin") == []
    dispute_escalate(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="it did not")
    assert waits("fin") == [("dispute", f"Dispute of {october}", "nlp", money("100.00"))]
    assert waits("sam") == []


def test_a_credit_note_waits_for_an_approver_then_for_finance_to_issue_it(october: str) -> None:
    correction = draft(part("40.00"), actor="sam")
    assert [row[0] for row in waits("sam")] == []  # sam made it
    ((kind, title, team, amount),) = waits("fin")
    assert (kind, title.startswith("Credit note"), team, amount) == ("approval", True, "nlp", money("40.00"))
    correction_approve(correction_id=correction.pk, actor="fin", now=FRIDAY)
    assert waits("fin") == []
    assert waits("lea") == [("correction", f"Correction {correction.pk}", "nlp", money("40.00"))]


def test_a_voided_draft_waits_until_somebody_builds_it_again(october: str) -> None:
    ingest_allocations(
        hold(9, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1), now=datetime(2026, 11, 9, tzinfo=UTC)
    )
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    assert [row[0] for row in waits("sam")] == ["invoice_issue"]
    invoice_void(month="2026-11", team="nlp", reason="wrong name", actor="sam")
    assert waits("sam") == [("draft", "2026-11 nlp", "nlp", money("30.00"))]
    assert waits("fin") == waits("tom") == []
    item = inbox_of(User.objects.get(username="sam"), FRIDAY).groups[0].items[0]
    assert (str(item.words).partition(":")[0], item.since) == ("the draft of nlp for 2026-11 was voided", NOVEMBER_OVER)
    assert signed_in("sam").get(item.link).status_code == 200
    invoice_rebuild(month="2026-11", team="nlp", actor="sam")
    assert [row[0] for row in waits("sam")] == ["invoice_issue"]


def test_what_did_not_arrive_waits_for_who_can_send_it_again(october: str) -> None:
    invoice = Invoice.objects.get()
    DocumentMail.objects.create(
        invoice=invoice, address="desk@example.com", language="en", status="failed", queued_at=FRIDAY,
        next_attempt_at=FRIDAY, error="no such mailbox",
    )  # fmt: skip
    Operation.objects.create(kind="close", month="2026-11", requested_by="sam", status="failed", finished_at=FRIDAY)
    nlp = Team.objects.get(code="nlp")
    alert = Alert.objects.create(
        cause="c", kind="burn", level="warning", team=nlp, period="2026-11", basis="6h", value=1, amount=1, data_time=FRIDAY,
        fired_at=FRIDAY,
    )  # fmt: skip
    channel = Channel.objects.create(name="hook", url="json://127.0.0.1:1/")
    Delivery.objects.create(alert=alert, channel=channel, attempts=2, next_attempt_at=FRIDAY, last_error="refused")
    assert waits("sam") == [
        ("mail", f"{october} to desk@example.com", "nlp", money("1008.00")),
        ("alert", "hook: 1 alert", "", None),
        ("operation", "close 2026-11", "", None),
    ]
    assert waits("tom") == [("alert", "hook: 1 alert", "", None)]
    assert waits("kim") == waits("viv") == []


def test_a_journal_that_nobody_acknowledges_and_a_report_that_did_not_go_out_wait(october: str) -> None:
    export = {"batch_hash": "ab" * 32, "journals": 1, "exported_by": "sam", "exported_at": FRIDAY - timedelta(days=5)}
    JournalExport.objects.create(period=Invoice.objects.get().period, debit=money("1008.00"), **export)
    view = SavedView.objects.create(owner=User.objects.get(username="tom"), name="mine", query="by=team")
    channel = Channel.objects.create(name="hook", url="json://127.0.0.1:1/")
    ReportSchedule.objects.create(view=view, channel=channel, cadence="daily", next_at=FRIDAY, attempts=1)
    assert waits("sam") == [("journal", "2026-10", "", money("1008.00"))]
    assert waits("tom") == [("report", f"{view} → hook", "", None)]
    assert waits("kim") == waits("fin") == []


def test_findings_of_every_sort_wait_for_whose_role_solves_them(october: str) -> None:
    person("ada", "admin")
    found = [
        Finding(kind, subject, FRIDAY)
        for kind, subject in (("unpriced", "H900"), ("quarantine", "hq-1"), ("silent_source", "gate"), ("check", "sums"))
    ]
    MonthFindings.objects.create(month="2026-11", as_of=FRIDAY, closable=False, content=stored(found))
    assert [row[0] for row in waits("ada")] == ["quarantine", "silent"]
    assert [row[0] for row in waits("sam")] == ["unpriced", "finding"]
    assert waits("tom") == waits("fin") == []


def test_where_nothing_waits_one_statement_says_so(october: str, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for name in ("sam", "tom", "fin", "viv"):
        user, setup = User.objects.get(username=name), BillingSetup.objects.get()
        access_of(user)
        with django_assert_num_queries(1):
            assert inbox_of(user, FRIDAY, setup).number == 0


def test_whose_disputes_they_are_is_asked_at_once(october: str, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    user, setup = User.objects.get(username="sam"), BillingSetup.objects.get()
    access_of(user)
    opened(october, positions=(1,), amount="100.00")
    opened(october, positions=(2,), amount="8.00")
    with django_assert_num_queries(3):  # what kinds there are, the disputes, whose they are
        assert inbox_of(user, FRIDAY, setup).number == 2


def test_an_unusual_day_waits_for_the_lead_with_what_was_spent_beyond_the_usual(october: str) -> None:
    CostAnomaly.objects.create(
        team=Team.objects.get(code="nlp"), kind="gpu", sku="NVIDIA-H800", day=date(2026, 10, 10), amount=money("900.00"),
        median=money("250.00"), mad=1, z=9, basis="own", found_at=FRIDAY,
    )  # fmt: skip
    assert waits("tom") == [("anomaly", "2026-10-10 NVIDIA-H800", "nlp", money("650.00"))]
    assert waits("kim") == []
    CostAnomaly.objects.update(feedback="planned", feedback_at=FRIDAY)
    assert waits("tom") == []


def test_a_token_that_ends_waits_for_its_owner_or_for_who_manages_people(october: str) -> None:
    """One that is in use; not one that nobody uses, that has time, or that is over anyway."""
    day = timedelta(days=1)
    person("ada", "admin")
    for name, owner, ends, used, revoked in (
        ("mine", "sam", 14 * day, day, None), ("agent", None, day, day, None), ("over", None, -day, 1.5 * day, None),
        ("idle", None, day, 3 * day, None), ("later", "sam", 15 * day, day, None), ("revoked", "sam", day, day, FRIDAY),
    ):  # fmt: skip
        owned = User.objects.get(username=owner) if owner else None
        made, _ = api_token_create(name=name, scopes=["usage:read"], actor="t", owner=owned, source="hq-1" * (not owner),
                                   expires_at=FRIDAY + ends)  # fmt: skip
        ApiToken.objects.filter(pk=made.pk).update(last_used_at=FRIDAY - used, revoked_at=revoked)
    assert waits("ada") == [("token", "agent hq-1", "", None), ("token", "over hq-1", "", None)]
    assert waits("sam") == [("token", "mine", "", None)]
    assert waits("tom") == waits("viv") == []
    ((item,),) = (group.items for group in inbox_of(User.objects.get(username="sam"), FRIDAY).groups)
    last = (FRIDAY + 14 * day).astimezone(ZoneInfo("Asia/Shanghai"))
    assert (item.link, item.words) == ("/tokens/", f"ends on {last:%Y-%m-%d}")


def test_the_most_money_comes_first_and_the_menu_counts(october: str) -> None:
    opened(october, amount="100.00")
    invoice = Invoice.objects.get()
    DocumentMail.objects.create(
        invoice=invoice, address="desk@example.com", language="en", status="failed", queued_at=FRIDAY, next_attempt_at=FRIDAY
    )
    assert [(row[0], row[3]) for row in waits("sam")] == [("mail", money("1008.00")), ("dispute", money("100.00"))]
    page = text_of(signed_in("sam"), "/inbox/")
    assert "2 items need your attention" in page
    assert '<span class="waiting">2</span></a>' in page
    assert 'href="/disputes/' in page
    other = text_of(signed_in("viv"), "/inbox/")
    assert "Nothing needs your attention" in other
    assert "waiting" not in other.partition("<main")[0]


def test_the_api_gives_the_same_items_with_exact_amounts(october: str) -> None:
    opened(october, amount="100.00")
    answer = signed_in("sam").get("/api/v1/inbox").json()
    assert answer["waiting"] == 1
    (kind,) = answer["kinds"]
    (item,) = kind["items"]
    assert (kind["kind"], item["team"], item["amount"], item["since"]) == ("dispute", "nlp", "100.00", FRIDAY.isoformat())
    assert item["link"].startswith("/disputes/")


def test_a_token_sees_what_waits_for_its_owner_within_its_team(october: str) -> None:
    opened(october, amount="100.00")
    sam, cv = User.objects.get(username="sam"), Team.objects.get(code="cv")

    def waiting(name: str, **facts: Any) -> int:
        _, presented = api_token_create(name=name, scopes=["invoices:read"], actor="ops", **facts)
        number: int = Client().get("/api/v1/inbox", headers=bearer(presented)).json()["waiting"]
        return number

    assert waiting("of-sam", owner=sam) == 1
    assert waiting("of-cv", owner=sam, team=cv) == 0
    assert waiting("of-nobody") == 0


MORNING = datetime(2026, 11, 9, 0, 30, tzinfo=UTC)
"""Half past eight in Shanghai, the zone of the set-up."""


@pytest.fixture
def hooked(october: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """A dispute of 100.00 waits; sam has the digest sent to a channel. What is sent: channel, title, text."""
    got: list[tuple[str, str, str]] = []

    def take(channel: Channel, *, title: str, body: str) -> None:
        got.append((channel.name or channel.mail, title, body))

    monkeypatch.setattr("billing.inbox.services.digests.send", take)
    opened(october, amount="100.00")
    digest_choose(
        user=User.objects.get(username="sam"), wanted=True, channel=Channel.objects.create(name="hook", url="json://127.0.0.1:1/")
    )
    return got


def test_a_digest_is_sent_once_a_day_from_eight_local_time(
    hooked: list[tuple[str, str, str]], settings: Any, october: str
) -> None:
    settings.PORTAL_URL = "https://billing.example"
    assert digests_send(now=MORNING - timedelta(minutes=31)) == 0
    assert digests_send(now=MORNING) == 1
    assert digests_send(now=MORNING + timedelta(hours=3)) == 0
    assert hooked == [(
        "hook", "1 item needs your attention · Suanpan",
        f"Disputes (1): 100.00 CNY\n  Dispute of {october}, nlp: 100.00\n\nInbox: https://billing.example/inbox/\n"
        "You can change or stop this message on the page Inbox.\n",
    )]  # fmt: skip
    assert digests_send(now=MORNING + timedelta(days=1)) == 1


def test_a_digest_goes_by_mail_unless_somebody_opts_out(hooked: list[tuple[str, str, str]], settings: Any) -> None:
    User.objects.filter(username="lea").update(email="lea@example.com")
    assert digests_send(now=MORNING) == 1  # without a mail server nobody is written to
    settings.ALERT_MAIL_URL = "mailto://127.0.0.1:1"
    assert digests_send(now=MORNING + timedelta(days=1)) == 2
    client = signed_in("lea")
    assert client.post("/inbox/digest/", {"where": "off"}).status_code == 302
    assert digests_send(now=MORNING + timedelta(days=2)) == 1
    assert [name for name, _, _ in hooked].count("lea") == 1
    assert AuditEntry.objects.filter(action="digest_choose", subject="lea").count() == 1


def test_a_digest_that_was_refused_is_sent_again_after_a_while(
    hooked: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Channel.objects.update(url="json://127.0.0.1:9/")
    monkeypatch.undo()
    assert digests_send(now=MORNING) == 0
    digest = Digest.objects.get(user__username="sam")
    assert (digest.attempts, digest.day, digest.next_at) == (1, None, MORNING + timedelta(minutes=1))
    assert "did not take the message" in digest.last_error


def test_a_day_on_which_nothing_waits_sends_nothing(hooked: list[tuple[str, str, str]]) -> None:
    digest_choose(user=User.objects.get(username="viv"), wanted=True, channel=None)
    User.objects.filter(username="sam").update(is_active=False)
    assert digests_send(now=MORNING) == 0
    assert hooked == []


def test_a_digest_that_cannot_be_made_holds_up_no_other(
    hooked: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zoe = person("zoe", "finance")
    digest_choose(user=zoe, wanted=True, channel=Channel.objects.create(name="zoe", url="json://127.0.0.1:1/"))

    def failing(user: User, *how: Any) -> Inbox:
        if user != zoe:
            raise ArithmeticError("too large")
        return inbox_of(user, *how)

    monkeypatch.setattr("billing.inbox.services.digests.inbox_of", failing)
    assert digests_send(now=MORNING) == 1
    assert [name for name, _, _ in hooked] == ["zoe"]
    digest = Digest.objects.get(user__username="sam")
    assert (digest.attempts, digest.day, digest.next_at) == (1, None, MORNING + timedelta(minutes=1))
    assert digest.last_error == "ArithmeticError"
    assert "ArithmeticError: too large" in caplog.text
