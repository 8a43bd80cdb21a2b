"""An interruption that was learned of after the close stays charged: the report says so, and a credit note waits drafted."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from billing.closing.due_credits import credits_due
from billing.closing.report import Report, build_report
from billing.closing.services.waivers import exception_waive
from billing.corrections.services.corrections import correction_void
from billing.inbox.findings import findings_of
from billing.inbox.selectors import inbox_of
from billing.inbox.services import findings_refresh
from billing.invoices.models import Correction, Invoice
from billing.invoices.services.periods import period_open
from billing.usage.models import AllocationInterruption
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, money, signed_in
from tests.factories.corrections import NOVEMBER_OVER, bill, issue, people, proofs_hold, shown

pytestmark = pytest.mark.django_db
IN_DECEMBER, DECEMBER_OVER = datetime(2026, 12, 9, tzinfo=UTC), datetime(2027, 1, 1, 0, 5, tzinfo=UTC)
POLICY = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": {"cap_hours": "1"}}


def hold(number: int, until: str, reason: str | None = None, **changed: Any) -> dict[str, Any]:
    """Eight devices at 10 an hour from two hours before the end of October in Shanghai, 16:00 UTC."""
    ended = {"ended_at": until if reason else None, "observed_until": until, "end_reason": reason}
    return allocation_record(number, started_at="2026-10-31T14:00:00Z", **ended, **changed)


def november() -> Report:
    return build_report(period_open(month="2026-11"), now=NOVEMBER_OVER)


def left(report: Report) -> list[tuple[str, str, Decimal, Decimal | None, bool]]:
    return [(item.kind, item.subject, item.quantity, item.amount, item.blocks) for item in report.exceptions
            if item.kind == "carried_in_closed_time"]  # fmt: skip


@pytest.fixture
def october(tmp_path: Path) -> None:
    """Two holds that still run when October is closed: 16 GPU-hours each, 160.00."""
    people()
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "2026-10-31T16:00:00Z"), hold(2, "2026-10-31T16:00:00Z", namespace="cv"))
    bill()


def test_what_the_platform_would_carry_of_a_closed_month_is_said_and_reminded_of(october: None) -> None:
    """The first is preempted at 17:00: of October 16 GPU-hours. Of the lost node the last hour is in November."""
    ingest_allocations(
        hold(1, "2026-10-31T17:00:00Z", "preempted"), hold(2, "2026-10-31T17:00:00Z", "node lost", namespace="cv")
    )
    report = november()
    assert left(report) == [("carried_in_closed_time", "hq-1/nlp-train", Decimal(16 * 3600), Decimal("160.00"), False)]
    assert "carried_in_closed_time" in {item.kind for item in findings_of(report, NOVEMBER_OVER, ())}
    exception_waive(period=period_open(month="2026-11"), kind="carried_in_closed_time", subject="hq-1/nlp-train",
                    reason="credited by a note", actor="sam", now=NOVEMBER_OVER)  # fmt: skip
    assert "carried_in_closed_time" not in {item.kind for item in findings_of(november(), NOVEMBER_OVER, ())}


def test_a_cap_reaches_into_the_closed_month(october: None) -> None:
    """Lost at 16:30: half an hour of eight devices is of October."""
    ingest_allocations(hold(2, "2026-10-31T16:30:00Z", "node lost", namespace="cv"))
    assert left(november()) == [("carried_in_closed_time", "hq-1/cv", Decimal(4 * 3600), Decimal("40.00"), False)]


def test_what_was_known_at_the_close_was_credited_by_it(tmp_path: Path) -> None:
    people()
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "2026-10-31T17:00:00Z", "preempted"))
    bill()
    assert left(november()) == []


def preempted() -> str:
    """The first hold ended at 17:00, which was learned in November: 16 GPU-hours of October. Return its invoice."""
    ingest_allocations(hold(1, "2026-10-31T17:00:00Z", "preempted"), now=NOVEMBER_OVER)
    findings_refresh(now=NOVEMBER_OVER)
    return str(Invoice.objects.get(team__code="nlp", period__month="2026-10").number)


def waits(name: str, now: datetime = NOVEMBER_OVER) -> list[tuple[str, str, str, Decimal | None]]:
    found = inbox_of(User.objects.get(username=name), now)
    return [
        (group.kind.name, str(item.title), item.team, item.amount) for group in found.groups for item in group.items
        if group.kind.name in ("credit", "approval", "correction", "finding")
    ]  # fmt: skip


def submitted(name: str = "sam", **changed: str) -> Correction:
    """Open the draft from the inbox and send it as it is shown, but for what is `changed`."""
    found = inbox_of(User.objects.get(username=name), NOVEMBER_OVER)
    (item,) = next(group.items for group in found.groups if group.kind.name == "credit")
    client = signed_in(name)
    form = client.get(item.link).context["form"]
    answer = client.post(item.link, {**form.initial, **changed})
    assert answer.status_code == 302, answer.content.decode()
    return Correction.objects.latest("pk")


def test_a_credit_that_is_due_waits_as_a_draft_to_be_submitted_then_approved(october: None) -> None:
    number = preempted()
    assert waits("sam") == waits("lea") == [("credit", f"Credit note of {number}", "nlp", money("160.00"))]
    assert waits("fin") == waits("viv") == []
    correction = submitted()
    assert (correction.status, correction.amount, correction.reason_code) == ("draft", money("160.00"), "sla")
    assert "preempted 2026-10-31T17:00:00+00:00" in correction.evidence
    assert waits("sam") == []
    assert waits("lea") == waits("fin") == [("approval", "Credit note: 160.00 CNY", "nlp", money("160.00"))]
    assert left(november()) == credits_due() == []
    (note,) = issue(correction, by="lea", now=NOVEMBER_OVER)
    assert shown(note) == [("allowance", "credit", "-16.000000", "10.0000", "-160.00")]
    findings_refresh(now=NOVEMBER_OVER)
    assert waits("sam") == waits("lea") == []
    assert proofs_hold("2026-10")


def test_a_draft_whose_correction_is_dropped_is_due_again(october: None) -> None:
    number = preempted()
    correction = submitted()
    findings_refresh(now=NOVEMBER_OVER)
    assert waits("sam") == []
    correction_void(correction_id=correction.pk, actor="lea", reason="the amount is wrong", now=NOVEMBER_OVER)
    findings_refresh(now=NOVEMBER_OVER)
    assert waits("sam") == [("credit", f"Credit note of {number}", "nlp", money("160.00"))]


def test_the_person_who_submits_decides_the_amount(october: None) -> None:
    preempted()
    invoice = Invoice.objects.get(team__code="nlp")
    page = signed_in("sam").get(f"/corrections/new/{invoice.pk}/?due=1").content.decode()
    assert 'value="160.00"' in page
    correction = submitted(**{"amount-1": "100.00"})
    (note,) = issue(correction, by="lea", now=NOVEMBER_OVER)
    assert shown(note) == [("allowance", "credit", None, None, "-100.00")]
    assert credits_due() == []
    assert signed_in("sam").get(f"/corrections/new/{invoice.pk}/?due=1").status_code == 404


def test_a_draft_stays_until_it_is_submitted_also_over_another_close(october: None) -> None:
    number = preempted()
    ingest_allocations(hold(2, "2026-10-31T16:00:00Z", "completed", namespace="cv"))
    bill("2026-11", NOVEMBER_OVER)
    findings_refresh(now=IN_DECEMBER)
    assert waits("sam", IN_DECEMBER) == [("credit", f"Credit note of {number}", "nlp", money("160.00"))]


def test_an_answer_in_the_report_ends_the_draft(october: None) -> None:
    preempted()
    exception_waive(period=period_open(month="2026-11"), kind="carried_in_closed_time", subject="hq-1/nlp-train",
                    reason="the team asked for the end itself", actor="sam", now=NOVEMBER_OVER)  # fmt: skip
    findings_refresh(now=NOVEMBER_OVER)
    assert waits("sam") == credits_due() == []
    ingest_allocations(hold(2, "2026-10-31T16:00:00Z", "completed", namespace="cv"))
    bill("2026-11", NOVEMBER_OVER)
    findings_refresh(now=IN_DECEMBER)
    assert waits("sam", IN_DECEMBER) == []


def test_a_draft_credits_each_line_at_its_own_price(tmp_path: Path) -> None:
    """A list with 6.0000 from 15:00 on: 8 GPU-hours at 10.0000 and 8 at 6.0000. Time of the platform was not billed."""
    people()
    later = {"name": "2026-10b", "valid_from": "2026-10-31T15:00:00Z",
             "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "6.0000"}]}  # fmt: skip
    apply(tmp_path, interruption_policies=[POLICY], price_versions=[*SET_UP["price_versions"], later])
    serving = {"namespace": "serving"}
    ingest_allocations(hold(1, "2026-10-31T16:00:00Z"), hold(2, "2026-10-31T16:00:00Z", **serving))
    bill()
    ingest_allocations(hold(1, "2026-10-31T17:00:00Z", "preempted"), hold(2, "2026-10-31T17:00:00Z", "preempted", **serving))
    (draft,) = credits_due()
    assert [(credit.position, credit.amount, credit.quantity, credit.unit_price) for credit in draft.credits] == [
        (1, money("80.00"), money("8"), money("10.0000")), (2, money("48.00"), money("8"), money("6.0000")),
    ]  # fmt: skip
    assert draft.amount == money("128.00")


def test_time_that_a_commitment_paid_for_is_credited_at_its_price(tmp_path: Path) -> None:
    """10 of the 16 GPU-hours were committed at 7.0000: 6 at 10.0000 are 60.00, 10 at 7.0000 are 70.00."""
    people()
    bought = {"name": "nlp-h800", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "10",
              "price_per_gpu_hour": "7.0000", "valid_from": "2026-10-01"}  # fmt: skip
    apply(tmp_path, interruption_policies=[POLICY], commitments=[bought])
    ingest_allocations(hold(1, "2026-10-31T16:00:00Z"))
    bill()
    ingest_allocations(hold(1, "2026-10-31T17:00:00Z", "preempted"))
    (draft,) = credits_due()
    assert [(credit.amount, credit.unit_price) for credit in draft.credits] == [
        (money("60.00"), money("10.0000")), (money("70.00"), money("7.0000")),
    ]  # fmt: skip


def test_what_the_close_carried_already_is_not_due_again(tmp_path: Path) -> None:
    """The close carried 14:30 to 15:30 of a lost node; preempted, as it turns out, 14:00 to 14:30 are due as well."""
    people()
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "2026-10-31T15:30:00Z", "node lost"))
    bill()
    assert Invoice.objects.get(team__code="nlp").total == money("40.00")
    known = AllocationInterruption.objects.get()
    AllocationInterruption.objects.create(
        allocation=known.allocation, epoch=1, ended_at=known.ended_at, end_reason="preempted"
    )  # fmt: skip
    (draft,) = credits_due()
    assert [(credit.amount, credit.quantity) for credit in draft.credits] == [(money("40.00"), money("4"))]
