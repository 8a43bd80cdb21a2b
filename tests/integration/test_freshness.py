"""Every figure that can still change says through when its data are complete, and what is missing.

In most tests it is 22 November; agents report hourly until 1 November 01:00 in Shanghai and then nothing.
"""

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from django.test import Client

from billing.budgets.models import Alert, Budget, BudgetStatus
from billing.budgets.services import (
    BudgetWish,
    ChannelWish,
    alerts_deliver,
    budget_put,
    budgets_evaluate,
    channel_put,
    days_store,
    forecasts_update,
    standings_refresh,
)
from billing.closing.services.accrual import accrual_make
from billing.closing.services.closing import period_close
from billing.exports.journal import Chart
from billing.rating.assessment import rate_period
from billing.rating.freshness import Freshness, freshness, unbilled_in
from billing.tenancy.models import ApiToken, Team
from billing.usage.models import AgentWatermark, CoverageNote
from billing.usage.scope import EVERYTHING, UsageScope
from metering.intervals import Interval, billing_month
from tests.factories import apply, ingest_allocations, ingest_tokens, money, person, signed_in, token_record, watched
from tests.factories.pages import csv_rows, rows_of, text_of
from tests.factories.usage import hold
from tests.full_scenario import build_scenario
from tests.receivers import webhook
from tests.site_walk import read, walk_as
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOVEMBER = billing_month("2026-11", "Asia/Shanghai")
SILENT_SINCE = datetime(2026, 10, 31, 17, tzinfo=UTC)
NOW = datetime(2026, 11, 22, 17, tzinfo=UTC)
"""22 days later."""
SPOKEN = "1 Nov 01:00"


@pytest.fixture
def at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)


@pytest.fixture
def finance(at_now: None) -> Client:
    return signed_in(person("ann", "finance"))


def silent_since_november(directory: Path, **changed: Any) -> None:
    """One device of nlp and of cv for the first hour of November, 10.00 each; both clusters are silent since then."""
    apply(directory, watched=False, **changed)
    ingest_allocations(
        hold(1, "2026-10-31T16:00:00Z", "2026-10-31T17:00:00Z", quantity=1),
        hold(2, "2026-10-31T16:00:00Z", "2026-10-31T17:00:00Z", quantity=1, namespace="cv"),
    )
    watched(SILENT_SINCE)


def of(scope: UsageScope = EVERYTHING, now: datetime = NOW, window: Interval = NOVEMBER) -> Freshness:
    return freshness(scope, window, now)


# What the function says


def test_what_is_open_since_an_agent_fell_silent_is_no_earlier_gap(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    open_still = hold(1, "2026-10-31T16:00:00Z", "2026-11-20T17:00:00Z") | {"ended_at": None, "end_reason": None}
    ingest_allocations(open_still, now=NOW)
    watched(NOW - 2 * DAY)
    assert ([one.kind for one in of().gaps], of().earlier_gaps, len(of().silent)) == (["allocations"], [], 1)
    watched(NOW)
    assert (of().silent, [one.kind for one in of().earlier_gaps]) == ((), ["allocations"])


def test_data_are_complete_through_the_oldest_watermark_of_the_clusters_that_concern_a_scope(tmp_path: Path) -> None:
    apply(tmp_path, watched=False, ownership=[
        {"cluster": "hq-1", "namespace": "nlp-*", "team": "nlp"}, {"cluster": "hq-2", "namespace": "cv", "team": "cv"},
    ])  # fmt: skip
    watched(NOW - 3 * HOUR, "hq-1")
    watched(NOW - timedelta(minutes=1), "hq-2")
    everybody, nlp, cv = of(), of(UsageScope(frozenset({"nlp"}))), of(UsageScope(frozenset({"cv"})))
    assert (everybody.data_through, nlp.data_through) == (NOW - 3 * HOUR, NOW - 3 * HOUR)
    assert cv.data_through == NOW - timedelta(minutes=1)
    assert [(one.kind, one.place, one.name, one.since) for one in everybody.silent] == [
        ("agent", "hq-1", "gpu-agent", NOW - 3 * HOUR)
    ]
    assert (nlp.stale, cv.stale) == (True, False)
    assert of(UsageScope(cluster="hq-2")).data_through == NOW - timedelta(minutes=1)
    assert of(UsageScope(consumer="nlp-key-1")).silent == (), "no agent of a cluster reports tokens"


def test_a_watermark_within_the_hour_is_not_silence(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    watched(NOW - HOUR - timedelta(seconds=1))
    assert (len(of().silent), of().stale) == (1, True)
    watched(NOW - HOUR)
    assert (of().silent, of().data_through, of().stale) == ((), NOW - HOUR, False)


def test_an_agent_that_was_replaced_more_than_a_month_ago_is_expected_no_more(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    watched(NOW, agent="new")
    watched(NOW - 32 * DAY, agent="old")
    assert (of().silent, of().data_through) == ((), NOW)
    watched(NOW - 30 * DAY, agent="old")
    assert [(one.name, one.since) for one in of().silent] == [("old", NOW - 30 * DAY)]


def test_where_everybody_has_been_silent_for_months_it_is_still_said(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    watched(NOW - 90 * DAY)
    assert of().data_through == NOW - 90 * DAY
    assert of().stale


def test_a_stretch_that_was_filled_afterwards_is_complete_and_an_earlier_gap_is_named(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    watched(SILENT_SINCE)
    note = {"cluster": "hq-1", "agent": "backfill", "kind": "filled"}
    CoverageNote.objects.create(**note, start=SILENT_SINCE, until=NOW - 2 * DAY)
    assert (of().data_through, of().stale) == (NOW - 2 * DAY, True)
    watched(NOW)
    rewrite("DELETE FROM usage_coveragenote")
    stretch = {"start": NOW - 5 * DAY, "until": NOW - 4 * DAY}
    CoverageNote.objects.create(cluster="hq-1", agent="gpu-agent", kind="unwatched", **stretch)
    found = of()
    assert (found.data_through, found.stale) == (NOW, False)
    assert [(one.place, one.name, one.since) for one in found.gaps] == [("hq-1", "gpu-agent", NOW - 5 * DAY)]


def heard(source: str, at: datetime) -> None:
    ApiToken.objects.create(
        name=source, digest=source.encode().ljust(32, b"-")[:32], scopes=["usage:write"], source=source, last_used_at=at
    )


def test_a_gateway_that_reported_every_day_is_silent_after_a_day_and_one_that_seldom_reports_is_not(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    last = NOW - 25 * HOUR
    heard("litellm-hq", last)
    heard("seldom", last)
    for number in range(7):
        at = (last - number * DAY).isoformat()
        ingest_tokens(token_record(number, time=at), now=NOW)
        ingest_tokens(token_record(10 + number, time=(last - number * HOUR / 100).isoformat(), source="seldom"), now=NOW)
    assert [(one.kind, one.place, one.since) for one in of().silent] == [("gateway", "litellm-hq", last)]
    assert of().data_through == last
    assert of(UsageScope(frozenset({"nlp"}))).data_through == last
    ApiToken.objects.filter(source="litellm-hq").update(last_used_at=NOW - 23 * HOUR)
    assert (of().silent, of().data_through) == ((), NOW)


def test_files_are_complete_for_what_they_hold_so_data_reach_to_the_last_usage(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    assert of().data_through is None
    ingest_allocations(hold(1, "2026-11-05T00:00:00Z", "2026-11-05T02:00:00Z"), from_file=True, now=NOW)
    found = of()
    assert (found.data_through, found.silent) == (datetime(2026, 11, 5, 2, tzinfo=UTC), ())
    assert found.stale, "a running month without usage for 17 days is no ground for a forecast"
    ended = of(window=billing_month("2026-10", "Asia/Shanghai"))
    assert (ended.data_through, ended.stale) == (datetime(2026, 10, 31, 16, tzinfo=UTC), False)


def test_usage_without_owner_or_price_is_reported_in_hours_tokens_and_money(tmp_path: Path) -> None:
    """660 GPU-hours nobody owns are 6,600.00 at 10.00; 2 hours of cv on an A100 and 1,100 tokens of nlp have no price."""
    apply(tmp_path, watched=False)
    ingest_allocations(
        hold(1, "2026-11-01T00:00:00Z", "2026-11-03T18:00:00Z", quantity=10, namespace="nobodys"),
        hold(2, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", quantity=1, namespace="cv", accelerator="NVIDIA-A100"),
        now=NOW,
    )
    ingest_tokens(token_record(1, time="2026-11-02T00:00:00Z", model="qwen"), now=NOW)
    left_out = unbilled_in(rate_period(window=NOVEMBER, zone="Asia/Shanghai", close_seq=None))
    everything = freshness(EVERYTHING, NOVEMBER, NOW, unbilled=left_out)
    assert [(item.why, item.unit, str(item.quantity.normalize()), item.amount) for item in everything.unbilled] == [
        ("unowned", "gpu_seconds", "2.376E+6", Decimal("6600.00")), ("unpriced", "gpu_seconds", "7.2E+3", None),
        ("unpriced", "tokens", "1.1E+3", None),
    ]  # fmt: skip
    nlp = freshness(UsageScope(frozenset({"nlp"})), NOVEMBER, NOW, unbilled=left_out)
    assert [(item.why, item.unit, item.quantity) for item in nlp.unbilled] == [("unpriced", "tokens", Decimal(1100))]


@pytest.mark.parametrize(("address", "months"), [
    ("/overview/?month=2026-11", "2026-11"), ("/explorer/?month=2026-11", "2026-11"),
    ("/explorer/?from=2026-10-20&to=2026-11-30", "2026-10 2026-11"),
])  # fmt: skip
def test_the_file_of_what_is_not_billable_says_where_an_amount_is_of_a_part(
    tmp_path: Path, finance: Client, address: str, months: str
) -> None:
    """Ten hours that nobody owns are 100.00; of as many more on a device without a price nobody knows the amount."""
    apply(tmp_path, watched=False)
    ingest_allocations(
        hold(1, "2026-11-01T00:00:00Z", "2026-11-01T10:00:00Z", quantity=1, namespace="nobodys"),
        hold(2, "2026-11-01T00:00:00Z", "2026-11-01T10:00:00Z", quantity=1, namespace="others", accelerator="NVIDIA-A100"),
        now=NOW,
    )
    (row,) = csv_rows(finance.get(f"{address}&table=unbilled&as=csv").content)
    assert (row["reason"], Decimal(row["quantity"]), row["amount_at_list_price"]) == ("unowned", 72_000, "100.00")
    assert (row["partly_priced"], row["month"]) == ("yes", months)


def test_the_function_asks_few_questions_however_much_was_used(tmp_path: Path, django_assert_max_num_queries: Any) -> None:
    silent_since_november(tmp_path)
    with django_assert_max_num_queries(2):
        assert of().unbilled == []
    with django_assert_max_num_queries(2):
        assert of(UsageScope(frozenset({"nlp"}))).stale


# Pages


def test_every_page_that_a_person_reaches_says_since_when_metering_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk through an installation in which no agent has reported for 22 days; October is closed and complete."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    scenario = build_scenario(tmp_path, lambda name: f"its-{name}")
    watched(SILENT_SINCE)
    watched(SILENT_SINCE, "its-cluster")
    AgentWatermark.objects.update(watermark=SILENT_SINCE)
    standings_refresh(now=NOW)
    forecasts_update(now=NOW)
    for who in ("finance", "lead"):
        walk = walk_as(who, scenario, most=3)
        shown = {
            address: page for address, page in walk.pages.items()
            if 'class="side"' in page.source and "month=2026-10" not in address and not address.startswith("/explorer/")
        }  # fmt: skip
        reader = signed_in(who)
        explorer = read(reader, "/explorer/?range=this-month", walk)  # without a range it opens with October
        assert explorer is not None
        shown[explorer.address] = explorer
        assert len(shown) > 20
        mute = sorted(address for address, page in shown.items() if not says_since_when(page.text))
        assert mute == [], who
        estimates = [page for page in shown.values() if "Live estimate" in page.text]
        assert len(estimates) >= 5
        assert all(f"Live estimate, data through {SPOKEN}" in page.text for page in estimates)
        files = {address: body for address, body in walk.files.items() if "as=csv" in address and "month=2026-11" in address}
        for address, body in files.items():
            rows = csv_rows(body)
            dated = {row.get("data_through") for row in rows if row.get("month", "2026-11") == "2026-11"}
            if any(f"table={name}" in address for name in ("teams", "split", "lines", "pools", "commitments")):
                assert dated <= {SILENT_SINCE.isoformat()}, address


def says_since_when(text: str) -> bool:
    return "Metering is silent." in text and f"since {SPOKEN}, 22 d" in text


def test_a_page_of_a_closed_month_is_not_bothered_with_silence(tmp_path: Path, finance: Client) -> None:
    apply(tmp_path, watched=False)
    ingest_allocations(hold(1, "2026-10-05T00:00:00Z", "2026-10-05T02:00:00Z"))
    watched(SILENT_SINCE)
    period_close(month="2026-10", actor="ops", now=datetime(2026, 11, 1, tzinfo=UTC))
    text = text_of(finance, "/?month=2026-10")
    assert "silent" not in text
    assert "Live estimate" not in text


def test_nothing_is_forecast_or_compared_while_metering_is_silent(tmp_path: Path, finance: Client) -> None:
    silent_since_november(tmp_path)
    ingest_allocations(hold(3, "2026-10-10T00:00:00Z", "2026-10-15T00:00:00Z", quantity=8))
    days_store(now=NOW)
    assert f"Not enough data: metering is silent since {SPOKEN}." in text_of(finance, "/spending/?month=2026-11&part=end")
    why = text_of(finance, "/spending/?month=2026-11&part=why")
    assert f"Not enough data: metering is silent since {SPOKEN}." in why
    assert "Why less" not in why
    text = text_of(finance, "/?month=2026-11")
    assert f"Live estimate, data through {SPOKEN}. Same calculation as the invoice." in text
    assert "Agent gpu-agent (hq-1): since 1 Nov 01:00, 22 d" in text
    watched(NOW)
    assert "metering is silent" not in text_of(finance, "/spending/?month=2026-11&part=end")
    assert "Why less than in 2026-10" in text_of(finance, "/spending/?month=2026-11&part=why")


def test_what_cannot_be_billed_yet_is_on_the_first_page(tmp_path: Path, finance: Client) -> None:
    """660 GPU-hours without an owner at 10.00; for a lead only what their team used without a price: 2 hours."""
    apply(tmp_path, watched=False)
    ingest_allocations(
        hold(1, "2026-11-01T00:00:00Z", "2026-11-03T18:00:00Z", quantity=10, namespace="nobodys"),
        hold(2, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", quantity=1, accelerator="NVIDIA-A100"), now=NOW,
    )  # fmt: skip
    watched(NOW)
    text = text_of(finance, "/?month=2026-11")
    assert "Nothing was used" not in text
    for wanted in ("Not billable yet", "Usage without an owner", "660.0 GPU-h", "6,600.00", "Usage without a price"):
        assert wanted in text, wanted
    lead = text_of(signed_in(person("lea", "lead", team="nlp")), "/?month=2026-11")
    assert "Usage without an owner" not in lead
    assert "6,600.00" not in lead
    for wanted in ("Not billable yet", "Usage without a price", "2.0 GPU-h"):
        assert wanted in lead, wanted
    other = text_of(signed_in(person("kim", "lead", team="cv")), "/?month=2026-11")
    assert "Not billable yet" not in other
    assert "Nothing was used in 2026-11" in other


def test_a_large_month_keeps_what_cannot_be_billed(tmp_path: Path, finance: Client, settings: Any) -> None:
    from billing.closing.services.snapshots import snapshot_make
    from billing.invoices.selectors import period_of

    settings.CACHE_STATEMENTS_ABOVE_LINES = 1
    apply(tmp_path, watched=False)
    ingest_allocations(
        hold(1, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z"),
        hold(2, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", quantity=3, namespace="nobodys"), now=NOW,
    )  # fmt: skip
    watched(NOW)
    snapshot_make(period_of("2026-11"), now=NOW, at_leisure=True)
    text = text_of(finance, "/?month=2026-11")
    for wanted in ("Not billable yet", "6.0 GPU-h", "60.00", "Assessed 23 Nov 01:00."):
        assert wanted in text, wanted


def test_a_month_that_ended_and_is_open_stands_among_the_months_as_an_estimate(tmp_path: Path, finance: Client) -> None:
    """October has 2 hours of 8 devices at 10.00, 160.00; nobody has closed it."""
    silent_since_november(tmp_path)
    ingest_allocations(hold(3, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=8))
    text = text_of(finance, "/?month=2026-11&table=trend&as=csv").lstrip("\ufeff")
    assert text.splitlines() == [
        "month,state,total,of_it_notes,data_through", "2026-10,preview,160.00,0.00,2026-10-31T16:00:00+00:00",
        "2026-11,preview,20.00,0.00,2026-10-31T17:00:00+00:00",
    ]  # fmt: skip
    lead = signed_in(person("lea", "lead", team="nlp"))
    assert "2026-10,preview,160.00," in text_of(lead, "/teams/nlp/?month=2026-11&table=trend&as=csv")
    months = text_of(finance, "/recovery/?month=2026-11&table=months&as=csv").lstrip("\ufeff").splitlines()
    assert months == [
        "month,gpu,tokens,adjustments,idle,shared,noted,net,change,state,data_through",
        "2026-10,160.00,0.00,0.00,0.00,0.00,0.00,160.00,,estimate,2026-10-31T16:00:00+00:00",
    ]
    assert "not closed, estimate, data through 1 Nov 00:00" in " ".join(text_of(finance, "/recovery/?month=2026-11").split())


def test_a_file_says_through_when_its_data_are_complete(tmp_path: Path, finance: Client) -> None:
    silent_since_november(tmp_path)
    address = "/?month=2026-11&table=teams"
    rows = rows_of(finance, f"{address}&as=csv")
    assert [(row["team"], row["total"], row["data_through"]) for row in rows] == [
        ("cv", "10.00", "2026-10-31T17:00:00+00:00"), ("nlp", "10.00", "2026-10-31T17:00:00+00:00"),
    ]  # fmt: skip
    book = openpyxl.load_workbook(io.BytesIO(finance.get(f"{address}&as=xlsx").content))
    head, *cells = book.active.iter_rows(values_only=True)
    assert [row[head.index("data_through")] for row in cells] == ["2026-10-31T17:00:00+00:00"] * 2


def test_an_accrual_says_through_when_its_data_are_complete(tmp_path: Path) -> None:
    silent_since_november(tmp_path)
    made = accrual_make(month="2026-11", chart=Chart(), actor="fin", now=NOW)
    assert made.document["data_through"] == "2026-10-31T17:00:00+00:00"
    assert {row["data_through"] for row in csv_rows(made.csv)} == {"2026-10-31T17:00:00+00:00"}


# Doors


def test_a_summary_of_usage_says_what_is_missing(tmp_path: Path, at_now: None) -> None:
    silent_since_november(tmp_path)
    client = signed_in(person("ann", "finance"))
    answer = client.get("/api/v1/usage/summary?from=2026-11-01&until=2026-12-01").json()
    assert answer["data_through"] == "2026-10-31T17:00:00+00:00"
    assert answer["missing"]["silent"] == [
        {"kind": "agent", "place": "hq-1", "name": "gpu-agent", "since": "2026-10-31T17:00:00+00:00"}
    ]
    model = client.get("/api/v1/usage/summary?from=2026-11-01&until=2026-12-01&model=llama-3-8b").json()
    assert model["missing"]["silent"] == []


def test_a_budget_says_through_when_its_spending_is_complete(tmp_path: Path, at_now: None) -> None:
    silent_since_november(tmp_path, budgets=[{"team": "nlp", "amount": "100.00"}])
    budgets_evaluate(now=NOW)
    BudgetStatus.objects.update(forecast_p50=money("12.00"), forecast_at=NOW)
    (row,) = signed_in(person("ann", "finance")).get("/api/v1/budgets").json()["results"]
    standing = row["standing"]
    assert standing["spent"] == "10.00"
    assert datetime.fromisoformat(standing["data_through"]) == SILENT_SINCE
    assert datetime.fromisoformat(standing["silent_since"]) == SILENT_SINCE
    assert (standing["forecast_p50"], standing["forecast_withheld"]) == (None, "silent")


# Forecasts


def test_no_forecast_is_made_before_the_days_of_the_period_are_counted(tmp_path: Path, finance: Client) -> None:
    """529 hours of 8 devices at 10.00 are 42,320.00; 720 hours of the month are 57,600.00 at that rate."""
    apply(tmp_path, watched=False, budgets=[{"team": "nlp", "amount": "100000.00"}])
    ingest_allocations(hold(1, "2026-10-31T16:00:00Z", "2026-11-22T17:00:00Z", quantity=8), now=NOW)
    watched(NOW)
    standings_refresh(now=NOW)
    forecasts_update(now=NOW)
    standing = BudgetStatus.objects.get()
    assert (standing.spent, standing.forecast_p50, standing.forecast_withheld) == (money("42320.00"), None, "uncounted")
    assert "the days of the period are being added up" in text_of(finance, "/spending/?month=2026-11&part=end")
    assert "the days of the period are being added up" in text_of(finance, f"/budgets/{standing.budget_id}/")
    days_store(now=NOW)
    forecasts_update(now=NOW)
    standing.refresh_from_db()
    assert (standing.forecast_p50, standing.forecast_withheld) == (money("57600.00"), "")
    assert "57,600.00" in text_of(finance, "/spending/?month=2026-11&part=end")


def test_a_forecast_waits_for_three_days_of_spending(tmp_path: Path, finance: Client) -> None:
    apply(tmp_path, watched=False)
    ingest_allocations(hold(1, "2026-11-20T16:00:00Z", "2026-11-22T16:00:00Z", quantity=8), now=NOW)
    watched(NOW)
    days_store(now=NOW)
    assert "spending began less than three days ago" in text_of(finance, "/spending/?month=2026-11&part=end")


# Alerts


def budget(directory: Path, url: str, **wish: Any) -> Budget:
    channel_put(wish=ChannelWish("hook", url), actor="tests")
    values = {"period": "month", "amount": money("100.00"), "channels": ("hook",), **wish}
    budget_put(team=Team.objects.get(code="nlp"), wish=BudgetWish(**values), actor="tests")
    return Budget.objects.get(**{name: value for name, value in wish.items() if name in ("name", "namespace")})


def test_whoever_relies_on_a_budget_learns_once_that_metering_is_silent(tmp_path: Path, settings: Any) -> None:
    settings.PORTAL_URL = "https://billing.example.com"
    silent_since_november(tmp_path)
    with webhook() as hook:
        found = budget(tmp_path, hook.url, thresholds=(50,))
        for later in range(3):
            budgets_evaluate(now=NOW + later * DAY)
            alerts_deliver(now=NOW + later * DAY)
        (text,) = hook.texts
    assert text.startswith(f"Suanpan: metering of nlp is silent since {SPOKEN}")
    for wanted in (
        f"metering is silent since {SPOKEN}", "Spending is 10.00 of 100.00 CNY as far as usage was reported",
        "Data through: 2026-11-01 01:00 Asia/Shanghai", f"https://billing.example.com/budgets/{found.pk}/", "Scope: nlp",
    ):  # fmt: skip
        assert wanted in text, wanted
    alert = Alert.objects.get()
    assert (alert.kind, alert.data_time) == ("silence", SILENT_SINCE)


def test_an_alert_says_through_when_its_data_are_complete_and_no_forecast_fires_from_a_silence(tmp_path: Path) -> None:
    silent_since_november(tmp_path, budgets=[{"team": "nlp", "amount": "10.00", "thresholds": [100]}])
    standings_refresh(now=NOW)
    BudgetStatus.objects.update(forecast_p50=money("999.00"), forecast_at=NOW)
    budgets_evaluate(now=NOW)
    assert list(Alert.objects.order_by("basis").values_list("basis", "data_time")) == [
        ("actual", SILENT_SINCE), ("silence", SILENT_SINCE)
    ]


def test_a_budget_that_is_born_used_up_is_one_alert(tmp_path: Path, settings: Any) -> None:
    """17.8 hours at 10.00 are 178.00 of 100.00: 50, 80 and 100 % of spending and 100 % of the forecast are reached."""
    settings.PORTAL_URL = "https://billing.example.com/"
    apply(tmp_path, watched=False)
    ingest_allocations(hold(1, "2026-11-01T00:00:00Z", "2026-11-01T17:48:00Z", quantity=1), now=NOW)
    watched(NOW)
    with webhook() as hook:
        found = budget(tmp_path, hook.url, name="Training", namespace="nlp-*", thresholds=(50, 80, 100))
        standings_refresh(now=NOW)
        BudgetStatus.objects.update(forecast_p50=money("240.00"), forecast_at=NOW)
        budgets_evaluate(now=NOW)
        alerts_deliver(now=NOW)
        (text,) = hook.texts
    assert text.startswith("Suanpan: nlp reached 100% of its budget 2026-11 (Spending)")
    assert text.count("reached.") == 1
    assert "Also reached: Spending 50%, Spending 80%, Forecast 100%" in text
    assert "The budget is used up" in text
    assert "Nothing has to be done now" not in text
    assert "Scope: nlp · namespace nlp-*" in text
    assert f"Page: https://billing.example.com/budgets/{found.pk}/" in text


def test_two_budgets_of_one_name_are_distinguished_by_their_scope(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    ingest_allocations(hold(1, "2026-11-01T00:00:00Z", "2026-11-01T06:00:00Z", quantity=1), now=NOW)
    watched(NOW)
    with webhook() as hook:
        for namespace in ("nlp-train", "nlp-t*"):
            budget(tmp_path, hook.url, name="Training", namespace=namespace, thresholds=(50,))
        budgets_evaluate(now=NOW)
        alerts_deliver(now=NOW)
        (text,) = hook.texts
    assert text.count("Training, 2026-11: 50% reached.") == 2
    assert "Scope: nlp · namespace nlp-train\n" in text
    assert "Scope: nlp · namespace nlp-t*\n" in text
