"""Views of the explorer that people keep, share within a team, and have sent."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from billing.budgets.models import Channel
from billing.closing.services.closing import period_close
from billing.explorer.models import ReportSchedule, SavedView
from billing.explorer.services.reports import reports_send
from billing.explorer.services.saved_views import report_put, view_put
from billing.tenancy.models import AuditEntry, Membership, Team
from tests.factories import apply, ingest_allocations, person, signed_in
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import hold
from tests.receivers import Webhook, mail_server, webhook

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 3, tzinfo=UTC)  # Monday, 11:00 in Shanghai
ASKED = "range=last-month&by=namespace&team=nlp"


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: NOW)
        apply(for_all_tests)
        ingest_allocations(
            hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1),
            hold(3, "2026-10-10T02:00:00Z", "2026-10-10T04:00:00Z", quantity=1, namespace="cv"),
        )
        period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
        person("lead", "lead", team="nlp")
        person("colleague", "viewer", team="nlp")
        person("other", "lead", team="cv")


@pytest.fixture
def used(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


def save(who: str, **fields: str) -> int:
    return signed_in(who).post("/explorer/views/new/", {"name": "Our month", "query": ASKED, **fields}).status_code


def scheduled(address: str, **fields: str) -> ReportSchedule:
    assert save("lead") == 302
    channel = Channel.objects.create(name="nlp hook", url=address, team=Team.objects.get(code="nlp"), language="en")
    view = SavedView.objects.get()
    sent = {"channel": str(channel.pk), "cadence": "weekly", "hour": "8", **fields}
    assert signed_in("lead").post(f"/explorer/views/{view.pk}/reports/", sent).status_code == 302
    return ReportSchedule.objects.get()


def test_a_view_shared_with_a_team_is_found_by_who_may_see_it_and_by_nobody_else(used: None) -> None:
    assert save("lead", team="nlp") == 302
    assert SavedView.objects.get().query == "range=last-month&by=namespace&team=nlp"
    seen = {who: "Our month" in signed_in(who).get("/explorer/views/").content.decode() for who in ("colleague", "other")}
    assert seen == {"colleague": True, "other": False}
    assert "Our month" in signed_in("colleague").get("/explorer/").content.decode()


def test_only_its_owner_deletes_a_view_and_a_team_that_one_may_not_see_is_none(used: None) -> None:
    assert save("lead", team="cv") == 400
    assert save("lead", team="nlp") == 302
    view = SavedView.objects.get()
    assert signed_in("colleague").post(f"/explorer/views/{view.pk}/end/").status_code == 404
    assert signed_in("lead").post(f"/explorer/views/{view.pk}/end/").status_code == 302
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("fields", [{"name": ""}, {"query": "by=person"}, {"name": "x" * 101}])
def test_a_view_that_cannot_be_asked_or_has_no_name_is_refused(used: None, fields: dict[str, str]) -> None:
    assert save("lead", **fields) == 400


def test_a_report_brings_figures_and_picture_at_its_hour_once(used: None, hook: Webhook) -> None:
    report = scheduled(hook.url)
    assert report.next_at == datetime(2026, 11, 9, 0, tzinfo=UTC)  # Monday, 8:00 in Shanghai

    assert reports_send(now=report.next_at - timedelta(seconds=1)) == 0
    assert reports_send(now=report.next_at) == 1
    assert reports_send(now=report.next_at) == 0

    (message,) = hook.messages
    assert message["title"] == "Suanpan: Our month, October 2026"
    assert "Cost: 25.00 CNY" in message["message"]
    assert "nlp-train: 25.00" in message["message"]
    assert "20.00" not in message["message"]
    picture = base64.b64decode(message["attachments"][0]["base64"])
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    report.refresh_from_db()
    assert (report.next_at, report.last_sent_at) == tuple(datetime(2026, 11, day, tzinfo=UTC) for day in (16, 9))
    assert AuditEntry.objects.filter(action="explorer_report_put").count() == 1


def test_a_report_by_mail_has_the_figures_as_text_and_the_chart_as_a_picture(used: None, settings: Any) -> None:
    assert save("lead") == 302
    nlp = Team.objects.get(code="nlp")
    channel = Channel.objects.create(name="lead", mail="lead@example.com", team=nlp, language="zh-hans")
    view = SavedView.objects.get()
    asked = {"channel": str(channel.pk), "cadence": "monthly", "hour": "8"}
    assert signed_in("lead").post(f"/explorer/views/{view.pk}/reports/", asked).status_code == 302
    report = ReportSchedule.objects.get()
    assert report.next_at == datetime(2026, 12, 1, 0, tzinfo=UTC)
    with mail_server() as server:
        settings.ALERT_MAIL_URL = server.url
        assert reports_send(now=report.next_at - timedelta(days=20)) == 0
        ReportSchedule.objects.update(next_at=NOW)
        assert reports_send(now=NOW) == 1

    ((recipient, mail),) = server.mails
    assert recipient == "lead@example.com"
    assert "Our month, 2026年10月" in server.texts[0]
    assert "nlp-train: 25.00" in server.texts[0]
    (picture,) = [part.get_payload(decode=True) for part in mail.walk() if part.get_content_type() == "image/png"]
    assert isinstance(picture, bytes)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_report_that_is_ended_is_sent_no_longer_and_the_audit_log_says_who_did_both(used: None, hook: Webhook) -> None:
    report, lead = scheduled(hook.url), User.objects.get(username="lead")
    assert signed_in("other").post(f"/explorer/reports/{report.pk}/end/").status_code == 404
    assert signed_in("lead").post(f"/explorer/reports/{report.pk}/end/").status_code == 302
    assert (reports_send(now=report.next_at), hook.messages) == (0, [])
    noted = AuditEntry.objects.filter(action__startswith="explorer_report_").order_by("id")
    acting = {"channel": "portal", "account": lead.pk, "session": "password"}
    assert [(entry.action, entry.actor, entry.detail["acting"]) for entry in noted] == [
        ("explorer_report_put", "lead", acting), ("explorer_report_ended", "lead", acting),
    ]  # fmt: skip


def test_another_question_of_a_view_that_is_sent_and_its_end_are_in_the_audit_log(used: None, hook: Webhook) -> None:
    report = scheduled(hook.url)
    assert save("lead") == 302, "the same question again is no change"
    assert save("lead", query="range=last-month&by=job") == 302
    assert signed_in("lead").post(f"/explorer/views/{report.view_id}/end/").status_code == 302
    assert not ReportSchedule.objects.exists()
    noted = AuditEntry.objects.filter(action__startswith="explorer_report_").order_by("id")
    assert [(entry.action, entry.actor, entry.detail["channel"], entry.detail.get("query")) for entry in noted] == [
        ("explorer_report_put", "lead", "nlp hook", "range=last-month&by=namespace&team=nlp"),
        ("explorer_report_put", "lead", "nlp hook", "range=last-month&by=job"),
        ("explorer_report_ended", "lead", "nlp hook", None),
    ]  # fmt: skip


def test_a_report_that_was_refused_is_sent_again_after_a_while(used: None, hook: Webhook) -> None:
    report = scheduled(hook.url)
    hook.failing = True
    assert reports_send(now=report.next_at) == 0
    report.refresh_from_db()
    assert (report.attempts, report.next_at) == (1, datetime(2026, 11, 9, 0, 1, tzinfo=UTC))
    assert "did not take the message" in report.last_error
    hook.failing = False
    assert reports_send(now=report.next_at) == 1
    assert (hook.refused, len(hook.messages)) == (1, 1)


def test_a_report_shows_what_its_owner_may_see_when_it_is_sent(used: None, hook: Webhook) -> None:
    report = scheduled(hook.url)
    Membership.objects.filter(user__username="lead").delete()
    assert reports_send(now=report.next_at) == 0
    assert hook.messages == []
    report.refresh_from_db()
    assert "its owner may no longer have reports sent there" in report.last_error


def test_a_report_says_what_is_in_none_of_its_figures(used: None, hook: Webhook) -> None:
    """The price has no cost sheet, so nobody knows what 2.5 GPU-hours drew."""
    report = scheduled(hook.url)
    SavedView.objects.update(query=f"{ASKED}&metric=energy")
    assert reports_send(now=report.next_at) == 1
    said = "2.500000 GPU-hours have a price without a cost sheet: their energy is not known and in no figure here."
    lines = hook.messages[0]["message"].splitlines()
    assert lines[1:] == ["Energy: 0.000 kWh", "Not compared: there are no figures before 1 Oct.", "", said]


def test_a_report_counts_the_groups_beyond_those_that_are_told_apart(
    used: None, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 namespaces, of which the page tells 12 apart and the report names 10: 5 are left."""
    ingest_allocations(*(
        hold(number, "2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z", quantity=1, namespace=f"nlp-{number}")
        for number in range(10, 25)
    ))
    monkeypatch.setattr("billing.explorer.selectors.LISTED", 12)
    report = scheduled(hook.url)
    SavedView.objects.update(query="range=this-month&by=namespace&team=nlp&column=none")
    assert reports_send(now=report.next_at) == 1
    assert "and 5 more" in hook.messages[0]["message"].splitlines()


def test_a_report_of_everything_says_that_some_usage_has_no_owner(used: None, hook: Webhook) -> None:
    """2 GPU-hours of nobody are in no figure of the running month: who sees everything is told, as on the page."""
    ingest_allocations(
        hold(4, "2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z", quantity=1),
        hold(5, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", quantity=1, namespace="stray"),
    )
    finance, said = person("fay", "finance"), "Some usage is not billable yet and in no figure; the page names it."
    for number, (query, is_said) in enumerate((("range=this-month", True), ("range=this-month&team=nlp", False))):
        view = view_put(owner=finance, name=query, query=query, actor="fay")
        channel = Channel.objects.create(name=query, url=hook.url, language="en")
        report_put(view=view, channel=channel, cadence="daily", hour=8, actor="fay", now=NOW, zone="Asia/Shanghai")
        assert reports_send(now=NOW + timedelta(days=1)) == 1
        lines = hook.messages[number]["message"].splitlines()
        assert ("Cost: 10.00 CNY (so far)" in lines, said in lines) == (True, is_said)


def test_a_report_of_a_view_that_nobody_can_ask_any_more_holds_up_no_other(used: None, hook: Webhook) -> None:
    report = scheduled(hook.url)
    old = SavedView.objects.create(name="Old", query="by=person", owner=report.view.owner)
    ahead = report.next_at - timedelta(hours=1)
    ReportSchedule.objects.create(view=old, channel=report.channel, cadence="weekly", hour=7, next_at=ahead)
    assert reports_send(now=report.next_at) == 1
    assert [message["title"] for message in hook.messages] == ["Suanpan: Our month, October 2026"]
    waiting = ReportSchedule.objects.get(view=old)
    assert (waiting.attempts, waiting.next_at) == (1, report.next_at + timedelta(minutes=1))
    assert waiting.last_error.startswith("by 'person'")


def test_a_report_is_not_sent_to_somebody_who_left_and_ends_with_the_account_of_its_owner(used: None, settings: Any) -> None:
    """The mail address of the channel is that of an account, which is closed, then made again; then the lead leaves."""
    report = scheduled("json://127.0.0.1:1/")
    Channel.objects.update(url="", mail="Bo@Example.com")
    bo = User.objects.create_user("bo", email="bo@example.com", is_active=False)
    at = report.next_at
    with mail_server() as server:
        settings.ALERT_MAIL_URL = server.url
        assert (reports_send(now=at), server.mails) == (0, [])
        report.refresh_from_db()
        assert report.last_error == "nlp hook: the account of that address is closed; choose another"
        User.objects.filter(pk=bo.pk).update(is_active=True)
        assert (reports_send(now=at + timedelta(hours=1)), len(server.mails)) == (1, 1)
        User.objects.filter(username="lead").update(is_active=False)
        assert (reports_send(now=at + timedelta(days=7)), len(server.mails)) == (0, 1)
    assert not ReportSchedule.objects.exists()
    entry = AuditEntry.objects.get(action="explorer_report_ended")
    assert (entry.actor, entry.detail["channel"]) == ("scheduler", "nlp hook")


def test_nobody_has_reports_sent_to_a_channel_of_another_team(used: None) -> None:
    assert save("other") == 302
    channel = Channel.objects.create(name="nlp hook", url="json://127.0.0.1:1/", team=Team.objects.get(code="nlp"))
    view = SavedView.objects.get(owner=User.objects.get(username="other"))
    sent = {"channel": str(channel.pk), "cadence": "daily", "hour": "8"}
    assert signed_in("other").post(f"/explorer/views/{view.pk}/reports/", sent).status_code == 400
    assert not ReportSchedule.objects.exists()
