"""Pages of budgets and anomalies: the figures of the ledger, and what a team's lead may change."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from billing.budgets.models import Alert, Budget, BudgetStatus, Channel, CostAnomaly, DailySpend, Mute
from billing.budgets.services import budgets_evaluate, days_store, forecasts_update, standings_refresh
from billing.tenancy.models import AuditEntry, Team
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, money, person

pytestmark = pytest.mark.django_db
OWNERSHIP = [{**row, "valid_from": "2024-01-01"} for row in SET_UP["ownership"]]
PRICE = {**SET_UP["price_versions"][0], "valid_from": "2024-01-01T00:00:00+08:00"}


@pytest.fixture(scope="module")
def this_month(for_all_tests: Path) -> None:
    """A budget of 1,000 of the month of now, of which one device for an hour of this month took 10.00."""
    apply(for_all_tests, ownership=OWNERSHIP, price_versions=[PRICE], budgets=[{"team": "nlp", "amount": "1000.00"}])
    now = timezone.now()
    start = (now - timedelta(hours=1)).isoformat()
    record = allocation_record(1, quantity=1, started_at=start, ended_at=now.isoformat(), observed_until=now.isoformat())
    ingest_allocations(record, now=now)


@pytest.fixture
def budget(this_month: None, db: None) -> Budget:
    return Budget.objects.get()


def signed_in(client: Client, role: str, team: str | None = None) -> Client:
    client.force_login(person(f"{role}-{team}", role, team=team))
    return client


def test_the_list_says_so_before_anything_was_counted_and_the_figures_after(budget: Budget, client: Client) -> None:
    signed_in(client, "lead", "nlp")
    assert "not counted" in client.get("/budgets/").content.decode()
    assert "Not counted yet" in client.get(f"/budgets/{budget.pk}/").content.decode()
    standings_refresh(now=timezone.now())
    spent = BudgetStatus.objects.get().spent
    for address in ("/budgets/", f"/budgets/{budget.pk}/"):
        text = client.get(address).content.decode()
        assert f"{spent:,.2f}" in text
        assert "1,000.00" in text


def test_a_member_of_another_team_sees_neither_budget_nor_day(budget: Budget, client: Client) -> None:
    signed_in(client, "lead", "cv")
    standings_refresh(now=timezone.now())
    assert "1,000.00" not in client.get("/budgets/").content.decode()
    assert client.get(f"/budgets/{budget.pk}/").status_code == 404


def test_a_lead_of_a_group_sees_the_groups_budget(budget: Budget, client: Client, tmp_path: Path) -> None:
    above = Team.objects.create(code="research", name="Research", is_group=True)
    Team.objects.filter(code="nlp").update(parent=above)
    teams = [{"code": "research", "name": "Research"}, {"code": "nlp", "parent": "research"}, {"code": "cv"}]
    budgets = [{"team": "research", "amount": "7777.00"}]
    apply(tmp_path, ownership=OWNERSHIP, price_versions=[PRICE], budgets=budgets, teams=teams)
    signed_in(client, "lead", "research")
    text = client.get("/budgets/").content.decode()
    assert "7,777.00" in text
    assert "1,000.00" in text


def test_the_lead_chooses_the_recipients_and_a_viewer_does_not(budget: Budget, client: Client) -> None:
    signed_in(client, "lead", "nlp")
    address = f"/budgets/{budget.pk}/recipients/"
    assert client.post(address, {"recipients": "ann@example.com\n\n bob@example.com "}).status_code == 302
    assert sorted(Channel.objects.values_list("name", flat=True)) == ["ann@example.com", "bob@example.com"]
    assert AuditEntry.objects.get(action="budget_recipients_put").actor == "lead-nlp"
    refused = client.post(address, {"recipients": "json://127.0.0.1/steal"})
    assert refused.status_code == 400
    assert "is no channel that nlp may use, nor a mail address" in refused.content.decode()
    assert budget.channels.count() == 2
    signed_in(client, "viewer", "nlp")
    assert client.post(address, {"recipients": ""}).status_code == 403
    assert "<textarea" not in client.get(f"/budgets/{budget.pk}/").content.decode()


def test_an_address_of_a_channel_is_never_shown(budget: Budget, client: Client) -> None:
    budget.channels.add(Channel.objects.create(name="ops", url="json://127.0.0.1/top-secret"))
    signed_in(client, "finance")
    text = client.get(f"/budgets/{budget.pk}/").content.decode()
    assert "ops" in text
    assert "top-secret" not in text


def test_a_mute_is_made_shown_and_ended(budget: Budget, client: Client) -> None:
    signed_in(client, "lead", "nlp")
    until = (timezone.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    address = f"/budgets/{budget.pk}/"
    assert client.post(f"{address}mute/", {"until": "soon", "reason": "x"}).status_code == 400
    assert client.post(f"{address}mute/", {"until": until, "reason": "<b>campaign</b>"}).status_code == 302
    text = client.get(address).content.decode()
    assert "&lt;b&gt;campaign&lt;/b&gt;" in text
    mute = Mute.objects.get()
    assert mute.until == datetime.fromisoformat(f"{until}+08:00")
    Mute.objects.update(since=mute.since - timedelta(seconds=5))
    assert client.post(f"{address}mutes/{mute.pk}/end/").status_code == 302
    assert "campaign" not in client.get(address).content.decode()


def test_alerts_of_the_budget_are_listed_with_their_recipients(budget: Budget, client: Client) -> None:
    Budget.objects.update(amount=money("0.01"))
    budget.channels.add(Channel.objects.create(name="ann@example.com", mail="ann@example.com"))
    budgets_evaluate(now=timezone.now())
    assert Alert.objects.filter(kind="threshold").exists()
    signed_in(client, "viewer", "nlp")
    text = client.get(f"/budgets/{budget.pk}/").content.decode()
    assert "Threshold reached" in text
    assert "ann@example.com: waiting" in " ".join(text.split())


def anomaly() -> CostAnomaly:
    return CostAnomaly.objects.create(
        team=Team.objects.get(code="nlp"), kind="gpu", sku="NVIDIA-H800", day="2026-10-10", amount=money("1600.00"),
        median=money("150.00"), mad=money("50.00"), z=money("19.561"), basis="own", found_at=timezone.now(),
    )  # fmt: skip


def test_feedback_is_kept_and_shown(budget: Budget, client: Client) -> None:
    finding = anomaly()
    signed_in(client, "lead", "nlp")
    assert "1,600.00" in client.get("/anomalies/").content.decode()
    address = f"/anomalies/{finding.pk}/feedback/"
    assert client.post(address, {"feedback": "planned", "note": "benchmarks"}).status_code == 302
    finding.refresh_from_db()
    assert (finding.feedback, finding.feedback_by, finding.feedback_note) == ("planned", "lead-nlp", "benchmarks")
    assert client.post(address, {"feedback": "maybe"}).status_code == 404
    assert '<span class="pill">Expected</span>' in client.get("/anomalies/").content.decode()


def test_an_anomaly_shows_thirty_days_what_is_usual_and_who_made_the_day(budget: Budget, client: Client) -> None:
    anomaly()
    DailySpend.objects.all().delete()
    for day, namespace, amount in ((9, "nlp-train", "150"), (10, "nlp-train", "1500"), (10, "nlp-dev", "100")):
        DailySpend.objects.create(
            day=date(2026, 10, day), team="nlp", kind="gpu", cluster="hq-1", namespace=namespace, sku="NVIDIA-H800",
            accelerator="NVIDIA-H800", amount=money(amount),
        )  # fmt: skip
    signed_in(client, "lead", "nlp")
    text = unescape(client.get("/anomalies/").content.decode())
    chart = json.loads(re.findall(r'data-chart="(\{.*?\})"></canvas>', text)[0])
    assert (len(chart["labels"]), chart["labels"][0], chart["labels"][-1]) == (30, "09-11", "10-10")
    spent, low, high = chart["series"]
    assert spent["texts"][-3:] == ["0.00", "150.00", "1,600.00"]
    assert (low["texts"][0], high["texts"][0]) == ("100.00", "200.00")  # 150 less and more 50
    assert re.findall(r'<li><a href="([^"]*)">([^<]*)</a> <b>([^<]*)</b>', text) == [
        ("/explorer/?from=2026-10-10&to=2026-10-10&by=job&team=nlp&namespace=nlp-train", "nlp-train", "1,500.00"),
        ("/explorer/?from=2026-10-10&to=2026-10-10&by=job&team=nlp&namespace=nlp-dev", "nlp-dev", "100.00"),
    ]


def test_the_forecast_is_shown_with_its_method(budget: Budget, client: Client) -> None:
    now = timezone.now()
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    BudgetStatus.objects.update(
        forecast_p50=money("900.00"), forecast_p10=money("800.00"), forecast_p90=money("1200.00"), forecast_method="weekday",
        forecast_errors={"weekday": "0.0512", "line": "0.2034"}, forecast_windows=9, forecast_at=now,
    )  # fmt: skip
    text = signed_in(client, "viewer", "nlp").get(f"/budgets/{budget.pk}/").content.decode()
    for wanted in ("Median of each weekday", "5.1%", "20.3%", "80 % likely: 800.00-1,200.00", "of 9 earlier windows",
                   "80 % likely, to"):  # fmt: skip
        assert wanted in text, wanted


def test_a_budget_that_has_ended_says_so_and_waits_for_no_count(budget: Budget, client: Client) -> None:
    signed_in(client, "lead", "nlp")
    Budget.objects.update(valid_until=datetime(2024, 11, 30, 16, tzinfo=UTC))  # midnight of Shanghai
    listed, shown = (client.get(address).content.decode() for address in ("/budgets/", f"/budgets/{budget.pk}/"))
    assert ("ended 2024-11-30" in listed, "not counted" in listed) == (True, False)
    assert ("Ended 2024-11-30" in shown, "Not counted yet" in shown) == (True, False)


def test_the_total_of_a_list_says_why_it_has_no_forecast(budget: Budget, client: Client) -> None:
    Budget.objects.create(team=Team.objects.get(code="cv"), period="month", amount=money("1.00"), thresholds=[])
    now = timezone.now()
    standings_refresh(now=now)
    BudgetStatus.objects.update(silent_since=now)
    text = signed_in(client, "finance").get("/budgets/").content.decode()
    assert (text.count("metering silent since"), text.count("not yet")) == (3, 0)


def test_an_alert_of_silence_shows_no_code(budget: Budget, client: Client) -> None:
    now = timezone.now()
    Alert.objects.create(
        team=budget.team, budget=budget, kind=Alert.Kind.SILENCE, level=Alert.Level.WARNING, basis="silence",
        period="2026-11", value=money("1.00"), amount=money("1000.00"), fired_at=now, data_time=now, cause="silence:1",
    )  # fmt: skip
    text = signed_in(client, "lead", "nlp").get(f"/budgets/{budget.pk}/").content.decode()
    assert ("Metering is silent" in text, "silence" in text) == (True, False)
