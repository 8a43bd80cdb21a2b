"""Where a team's month will end is one number, whichever page says it; and what was stored too long ago says when.

nlp spends 5.00 on each day of November at 9:00 local, of a budget of 300.00, and goes on at the mean rate of the days so
far. At 11:50 on the 11th that is 55.00 in 10 days and 710 minutes, 157.25 in 30 days; at noon 157.14, at 12:40 156.73.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.services import budgets_evaluate, days_store, forecasts_update, standings_refresh
from billing.closing.services.snapshots import month_assess
from billing.explorer.models import MonthCube
from billing.explorer.services import cubes_refresh
from billing.tenancy.models import Team
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in, watched
from tests.factories.api import program
from tests.factories.pages import rows_of, text_of
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
MADE = datetime(2026, 11, 11, 3, 50, tzinfo=UTC)
"""11:50 local."""
SOON, LATER = timedelta(minutes=10), timedelta(minutes=50)
EXPLORER = "/explorer/?range=this-month&part=outlook"


class Clock:
    """The time of the pages."""

    now = MADE


@pytest.fixture(scope="module")
def november(for_all_tests: Path) -> None:
    """Budget and forecast of 11:50."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: MADE)
        apply(for_all_tests, budgets=[{"team": "nlp", "amount": "300.00", "thresholds": [80]}])
        starts = [datetime(2026, 11, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(11)]
        ingest_allocations(
            *(hold(n, f"{at:%FT%T}Z", f"{at + timedelta(minutes=30):%FT%T}Z", quantity=1) for n, at in enumerate(starts)),
            now=MADE,
        )  # fmt: skip
        watched(MADE + timedelta(days=1))
        counted(MADE)
        person("fin", "finance")
        person("lead", "lead", team="nlp")


@pytest.fixture
def clock(november: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """It is 11:50 until somebody changes it."""
    clock = Clock()
    monkeypatch.setattr("django.utils.timezone.now", lambda: clock.now)
    return clock


def counted(now: datetime) -> None:
    """What the worker does every quarter of an hour."""
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)


def pages(who: str = "fin") -> dict[str, str]:
    """Every page that says where the month of nlp will end."""
    budget = Budget.objects.get(team__code="nlp").pk
    own = "" if who == "lead" else "&team=nlp"
    paths = {
        "budget": f"/budgets/{budget}/", "budgets": "/budgets/", "explorer": f"{EXPLORER}{own}",
        "team": "/spending/?month=2026-11&team=nlp&part=end",
    }  # fmt: skip
    client = signed_in(who)
    return {name: text_of(client, path) for name, path in paths.items()}


@pytest.mark.parametrize(("asked", "spent", "forecast"), [
    ("NVIDIA-H800", "55.00", ""), ("nvidia.com/mig-1g.10gb", "11.00", "31.45"),  # 11.00 in 10 days and 710 minutes of 30
])  # fmt: skip
def test_an_accelerator_has_no_forecast_of_its_slices_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, spent: str, forecast: str
) -> None:
    """Half an hour of each a day: a budget of the H800 counts its slices, in the explorer these have a name of their own."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: MADE)
    first, resource = SET_UP["price_versions"][0], "nvidia.com/mig-1g.10gb"
    slices = {"accelerator": "NVIDIA-H800", "resource": resource, "price_per_slice_hour": "2.0000"}
    apply(tmp_path, price_versions=[{**first, "gpu": [first["gpu"][0], slices]}])
    for number in range(22):
        at = datetime(2026, 11, 1 + number % 11, 1, tzinfo=UTC)
        part = {"resource": resource} if number > 10 else {}
        ingest_allocations(
            hold(number, f"{at:%FT%T}Z", f"{at + timedelta(minutes=30):%FT%T}Z", quantity=1, **part), now=MADE
        )
    watched(MADE + timedelta(days=1))
    counted(MADE)
    person("fin", "finance")
    asking = f"range=this-month&accelerator={asked}"
    assert f">{spent}<" in text_of(signed_in("fin"), f"/explorer/?{asking}")
    outlook = text_of(signed_in("fin"), f"/explorer/?{asking}&part=outlook")
    assert re.findall(r"<dd>\s*(\d+\.\d\d)\s*<small>", outlook) == [forecast][: bool(forecast)]
    assert ("Expected at the end of the month" in outlook) == bool(forecast)
    spending = text_of(signed_in("fin"), f"/spending/?month=2026-11&accelerator={asked}")
    assert ("part=end" in spending, "together with its slices" in spending) == (bool(forecast), not forecast)


@pytest.mark.parametrize("who", ["fin", "lead"])
def test_every_page_says_the_forecast_of_the_budget(clock: Clock, who: str) -> None:
    clock.now = MADE + SOON
    assert {name: "157.25" in text for name, text in pages(who).items()} == dict.fromkeys(pages(who), True)


@pytest.mark.parametrize("budget", ["without", "of a part", "of another team"])
def test_what_no_budget_is_about_is_forecast_as_of_now(clock: Clock, budget: str) -> None:
    clock.now = MADE + SOON
    if budget == "without":
        Budget.objects.all().delete()
    else:
        Budget.objects.update(**{"namespace": "nlp-*"} if budget == "of a part" else {"team": Team.objects.get(code="cv")})
    assert "157.14" in text_of(signed_in("fin"), f"{EXPLORER}&team=nlp")


def test_a_forecast_that_was_not_made_again_in_time_is_none_of_the_explorer(clock: Clock) -> None:
    clock.now = MADE + LATER
    found = pages()
    assert {name: ("157.25" in text, "156.73" in text) for name, text in found.items()} == {
        "budget": (True, False), "budgets": (True, False), "explorer": (False, True), "team": (False, True)
    }  # fmt: skip


def test_more_spent_than_was_foretold_is_no_forecast_anywhere(clock: Clock) -> None:
    clock.now = MADE + SOON
    BudgetStatus.objects.update(forecast_p50="41.23", forecast_p10="41.23", forecast_p90="41.23")
    found = pages()
    assert not [name for name, text in found.items() if "41.23" in text]
    assert ("157.14" in found["explorer"], "157.14" in found["team"]) == (True, True)
    (row,) = program("budgets:read").get("/api/v1/budgets").json()["results"]
    assert (row["standing"]["forecast_p50"], row["standing"]["forecast_withheld"]) == (None, "passed")


def test_a_published_price_counts_for_what_has_no_budget_too(clock: Clock, tmp_path: Path) -> None:
    """The whole company and nlp, which alone spends: twice the price from the 21st on, 10 of the 19.5 days to come.

    55.00 in 10.5 days go on: 5.238 a day for 9.5 days and twice that for 10 days are 154.52, and 209.52 in all.
    """
    clock.now = MADE + SOON
    dearer = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20.0000"}]
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": "2026-11-21T00:00:00+08:00", "gpu": dearer}
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], later])
    counted(clock.now)
    assert [text_of(signed_in("fin"), address).count("209.52") for address in (f"{EXPLORER}&team=nlp", EXPLORER)] == [1, 1]


WHOLE = {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}
HALF = {"resource": "nvidia.com/mig-3g.40gb", "price_per_slice_hour": "10.0000"}


@pytest.mark.parametrize("gpu", [[WHOLE, HALF], [HALF]], ids=["beside whole devices", "which alone have a price"])
def test_slices_that_get_a_price_of_their_own_are_not_free_from_then_on(clock: Clock, tmp_path: Path, gpu: Any) -> None:
    """Each day also has an hour of a half at the device's price, 5.00 more; from the 21st on it costs 10.00, so a day 15.00.

    110.00 in 10.5 days go on: 10.476 a day for 9.5 days and half as much again for 10 days are 256.67, and 366.67 in all.
    """
    clock.now, half = MADE + SOON, {"resource": HALF["resource"], "device_fraction": "0.5", "quantity": 1}
    days = range(1, 12)
    ingest_allocations(
        *(hold(50 + n, f"2026-11-{n:02}T01:00:00Z", f"2026-11-{n:02}T02:00:00Z", **half) for n in days), now=clock.now
    )
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": "2026-11-21T00:00:00+08:00", "gpu": gpu}
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], later])
    days_store(now=clock.now, rebuild=True)
    counted(clock.now)
    standing = BudgetStatus.objects.get(start__lte=clock.now, end__gt=clock.now)
    assert (str(standing.spent), str(standing.forecast_p50)) == ("110.00", "366.67")


@pytest.fixture
def large(clock: Clock, settings: Any) -> None:
    """The month is a large one, assessed and summed at 11:50, and no budget is about it."""
    settings.CACHE_STATEMENTS_ABOVE_LINES = 1
    Budget.objects.all().delete()
    month_assess(month="2026-11", now=MADE)
    cubes_refresh()


def test_sums_that_are_kept_are_forecast_as_of_their_own_time(clock: Clock, large: None) -> None:
    """What was used since is in no sum, so the time since must not count as time in which nothing was used."""
    clock.now = MADE + timedelta(hours=2)
    ingest_allocations(hold(50, "2026-11-11T04:30:00Z", "2026-11-11T05:00:00Z", quantity=1), now=clock.now)
    texts = [text_of(signed_in("fin"), address) for address in (EXPLORER, "/spending/?month=2026-11&part=end")]
    assert ["157.25" in text for text in texts] == [True, True]


def test_a_month_that_is_not_summed_is_not_forecast_from_nothing(clock: Clock, large: None) -> None:
    MonthCube.objects.all().delete()
    late = text_of(signed_in("fin"), EXPLORER)
    assert ("Expected at the end of the month" in late, "Forecast, a day" in late) == (False, False)


def test_a_stored_sum_and_forecast_say_when_once_they_were_not_made_again_in_time(clock: Clock) -> None:
    """The worker is away from 11:50 on: spending is counted every minute, forecasts are made every quarter of an hour."""
    named = dict.fromkeys(("budget", "budgets"), 0)
    clock.now = MADE + timedelta(minutes=4)
    assert {name: pages()[name].count("as of 11 Nov 11:50") for name in named} == {"budget": 0, "budgets": 0}
    clock.now = MADE + timedelta(minutes=6)
    assert {name: pages()[name].count("as of 11 Nov 11:50") for name in named} == {"budget": 1, "budgets": 1}
    clock.now = MADE + LATER
    assert {name: pages()[name].count("as of 11 Nov 11:50") for name in named} == {"budget": 2, "budgets": 2}


def test_a_total_of_budgets_is_as_of_the_oldest_of_them(clock: Clock) -> None:
    Budget.objects.create(team=Team.objects.get(code="cv"), period="month", amount="1.00", thresholds=[])
    counted(MADE)
    clock.now = MADE + LATER
    BudgetStatus.objects.filter(budget__team__code="cv").update(as_of=clock.now, forecast_at=clock.now)
    assert pages()["budgets"].count("as of 11 Nov 11:50") == 4, "the sum and the forecast of nlp, and those of the total"


def test_files_and_api_have_both_times(clock: Clock) -> None:
    clock.now = MADE + LATER
    (listed,) = rows_of(signed_in("fin"), "/budgets/?table=budgets&as=csv")
    assert (listed["as_of"], listed["forecast_at"]) == ("2026-11-11T03:50:00+00:00", "2026-11-11T03:50:00+00:00")
    (row,) = program("budgets:read").get("/api/v1/budgets").json()["results"]
    times = [datetime.fromisoformat(row["standing"][name]) for name in ("as_of", "forecast_at")]
    assert times == [MADE, MADE]


def test_days_that_nobody_added_up_are_not_days_without_spending(clock: Clock) -> None:
    """The worker comes to no day after the 10th; on the 14th the page knows ten days, and the sum of 11:50 on the 11th."""
    clock.now = MADE + timedelta(days=3)
    watched(clock.now)
    address = f"/budgets/{Budget.objects.get().pk}/"
    rows = rows_of(signed_in("fin"), f"{address}?table=days&as=csv")
    assert (len(rows), rows[-1]) == (10, {"day": "2026-11-10", "spent_at_list_price": "5.00", "sum": "50.00"})
    chart = json.loads(re.findall(r"""data-chart="(\{.*?\})"></canvas>""", pages()["budget"])[0])
    assert chart["series"][0]["values"][9:15] == ["50.000000", "55.00", None, None, None, None]


def test_no_alert_is_sent_of_a_forecast_that_was_not_made_again_in_time(clock: Clock) -> None:
    """The worker is back after an hour: what it sends first must not be the forecast from before."""
    Budget.objects.update(forecast_thresholds=[50])
    assert [alert.basis for alert in budgets_evaluate(now=MADE + timedelta(hours=1))] == []
    counted(MADE + timedelta(hours=1))
    assert [alert.basis for alert in budgets_evaluate(now=MADE + timedelta(hours=1))] == ["forecast"]
