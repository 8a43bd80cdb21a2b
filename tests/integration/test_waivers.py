"""Waivers of exceptions: with a reason, by whoever may close, until a day; after it the close is held again."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.closing.models import ExceptionWaiver
from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import WaiverError, exception_waive
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.tenancy.models import AuditEntry
from tests.factories import AFTER, apply, ingest_tokens, person, signed_in, token_record, watched

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
SUBJECT = "tests via usage/tokens"
LAST_MOMENT = datetime(2026, 11, 5, 15, 59, 59, tzinfo=UTC)  # of 5 November in Shanghai


@pytest.fixture(scope="module", autouse=True)
def a_bad_record_holds_october(for_all_tests: Path) -> None:
    apply(for_all_tests)
    ingest_tokens(token_record(1), token_record(2, input_tokens=-1))


def waive(until: date | None = date(2026, 11, 5), reason: str = "test traffic") -> ExceptionWaiver:
    return exception_waive(
        period=period_open(month="2026-10"), kind="quarantine", subject=SUBJECT, reason=reason, actor="lin", now=AFTER,
        until=until,
    )  # fmt: skip


def test_a_waiver_holds_through_its_last_local_day_and_no_longer() -> None:
    assert waive().expires_at == datetime(2026, 11, 5, 16, tzinfo=UTC)
    assert build_report(period_of("2026-10"), now=LAST_MOMENT).closable
    late = LAST_MOMENT + timedelta(seconds=1)
    (item,) = build_report(period_of("2026-10"), now=late).blocking
    assert (item.kind, item.waiver_expired, item.waiver_reason, item.waived_by) == (
        "quarantine", True, "test traffic", "",
    )  # fmt: skip
    with pytest.raises(CloseRefusedError):
        period_close(month="2026-10", actor="ops", now=late)
    assert BillingPeriod.objects.get().status == "open"
    exception_waive(
        period=period_of("2026-10"), kind="quarantine", subject=SUBJECT, reason="looked again", actor="kay", now=late
    )
    assert period_close(month="2026-10", actor="ops", now=late).changed
    reported = AuditEntry.objects.filter(action="exception_waive").values_list("actor", "detail")
    assert list(reported) == [
        ("lin", {"reason": "test traffic", "quantity": "1", "expires_at": "2026-11-06T00:00:00+08:00"}),
        ("kay", {"reason": "looked again", "quantity": "1", "expires_at": "2026-12-08T00:00:00+08:00"}),
    ]


def test_what_was_waived_when_the_month_was_closed_stays_waived() -> None:
    waive()
    period_close(month="2026-10", actor="ops", now=AFTER)
    assert build_report(period_of("2026-10"), now=AFTER + timedelta(days=400)).closable


@pytest.mark.parametrize("until", [date(2026, 11, 2), date(2027, 11, 5)])
def test_a_waiver_ends_neither_in_the_past_nor_beyond_a_year(until: date) -> None:
    with pytest.raises(WaiverError, match=f"until {until}: choose a day from today on, within 366 days"):
        waive(until)
    assert not ExceptionWaiver.objects.exists()


def test_finance_waives_on_the_page_which_reports_until_when_and_why() -> None:
    client = signed_in(person("kay", "finance"))
    assert "Waive…" in client.get("/close/?month=2026-10").content.decode()
    until = (datetime.now(tz=UTC) + timedelta(days=5)).date()
    body = {
        "kind": "quarantine", "subject": SUBJECT, "quantity": "1", "reason": "known probe", "until": until.isoformat(),
    }  # fmt: skip
    refused = client.post("/close/2026-10/waivers/", {**body, "reason": " "})
    assert (refused.status_code, "Reason: is missing" in refused.content.decode()) == (409, True)
    assert client.post("/close/2026-10/waivers/", {**body, "until": "soon"}).status_code == 409
    assert client.post("/close/2026-10/waivers/", body).status_code == 302
    page = client.get("/close/?month=2026-10").content.decode()
    assert "Waived by kay" in page
    assert "known probe" in page
    report = build_report(period_of("2026-10"), now=datetime.now(tz=UTC)).as_dict()
    (row,) = [row for row in report["exceptions"] if row["kind"] == "quarantine"]
    assert (row["waived_by"], row["waiver_reason"], row["blocks"]) == ("kay", "known probe", False)
    assert row["waived_until"] == ExceptionWaiver.objects.get().expires_at.isoformat()


def test_what_came_since_the_page_was_read_is_not_waived() -> None:
    client = signed_in(person("kay", "finance"))
    page = client.get("/close/?month=2026-10").content.decode()
    (seen,) = re.findall(r'name="quantity" value="([^"]*)"', page)
    assert seen == "1"
    ingest_tokens(token_record(3, input_tokens=-1))
    until = (timezone.localdate() + timedelta(days=5)).isoformat()
    sent = {"kind": "quarantine", "subject": SUBJECT, "quantity": seen, "reason": "known probe", "until": until}
    assert client.post("/close/2026-10/waivers/", sent).status_code == 302
    (item,) = build_report(period_of("2026-10"), now=timezone.now()).blocking
    assert (item.kind, item.quantity, ExceptionWaiver.objects.get().quantity) == ("quarantine", Decimal(2), Decimal(1))


def silent(client: Any) -> tuple[list[tuple[str, str, str]], str]:
    """What blocks October for the silence of hq-1, as the page shows it, and the page."""
    page = client.get("/close/?month=2026-10").content.decode()
    shown = re.search(r'name="seen" value="([^"]*)"', page)
    return [tuple(item) for item in json.loads(unescape(shown.group(1)))] if shown else [], page


def test_what_one_silence_causes_is_waived_once_and_what_came_later_is_not() -> None:
    for agent in ("gpu-agent", "gpu-agent-2", "gpu-agent-3"):
        watched(datetime(2026, 10, 10, tzinfo=UTC), agent=agent)
    finance = signed_in(person("fin", "finance"))
    seen, page = silent(finance)
    assert len(seen) == 3
    assert {subject.partition("/")[0] for _, subject, _ in seen} == {"hq-1"}
    assert f"Waive all {len(seen)} exceptions of this cause" in " ".join(page.split())
    left = seen[:-1]
    wish = {"cause": "hq-1", "seen": json.dumps(left), "reason": "the rack was off", "until": "2199-01-01"}
    refused = finance.post("/close/2026-10/waivers/cause/", wish)
    assert (refused.status_code, ExceptionWaiver.objects.count()) == (409, 0)
    wish["until"] = f"{(timezone.localdate() + timedelta(days=9)):%Y-%m-%d}"
    assert finance.post("/close/2026-10/waivers/cause/", wish).status_code == 302
    waived = set(ExceptionWaiver.objects.values_list("kind", "subject", "reason"))
    assert waived == {(kind, subject, "the rack was off") for kind, subject, _ in left}
    blocking = {(item.kind, item.subject) for item in build_report(period_of("2026-10"), now=timezone.now()).blocking}
    assert seen[-1][:2] in blocking
    assert not blocking & set(left)
