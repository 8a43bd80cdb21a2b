"""The page of the explorer: what it shows, where each figure leads, its files, and what nobody else sees."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from django.http import QueryDict

from billing.budgets.services import days_store
from billing.closing.services.closing import period_close
from billing.explorer.models import MonthCube
from billing.explorer.selectors import Explorer
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.services.invoices import invoices_issue
from billing.portal.board import Board
from billing.portal.explorer_why import Why
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.statements import month_facets
from billing.tenancy.models import BillingSetup, NamespaceOwnership, Team
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record, watched
from tests.factories.api import program
from tests.factories.corrections import credit, part
from tests.factories.months import OCTOBER_OVER
from tests.factories.pages import rows_of, text_of
from tests.factories.two_months import two_months
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """On 10 October nlp trains for 25.00 and cv for 20.00; nlp asks a model for 10.80 on the 15th."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: NOW)
        apply(for_all_tests)
        ingest_allocations(
            hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1,
                 workload={"kind": "Job", "name": "pretrain"}),
            hold(3, "2026-10-10T02:00:00Z", "2026-10-10T04:00:00Z", quantity=1, namespace="cv"),
        )  # fmt: skip
        ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))
        period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
        person("fin", "finance")
        person("lead", "lead", team="nlp")


@pytest.fixture
def used(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 3 November."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)


def chart_of(text: str) -> dict[str, Any]:
    found = re.search(r"""data-chart="(\{.*?\})"></canvas>""", text, re.DOTALL)
    assert found is not None
    chart: dict[str, Any] = json.loads(found.group(1))
    return chart


def test_a_unit_cost_has_the_decimals_of_a_price_on_the_page_as_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10M tokens at 0.0040 per million are 0.04: on the page the cost of a million was 0.00."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    small = {"model": "small", "input": "0.0040", "output": "0.0040"}
    apply(tmp_path, price_versions=[{**SET_UP["price_versions"][0], "tokens": [small]}])
    tokens = {"input_tokens": 10_000_000, "cache_read_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
    ingest_tokens(token_record(model="small", **tokens))
    client = signed_in(person("fin", "finance"))
    asking = "/explorer/?month=2026-10&column=per_1m_tokens"
    assert re.search(r">\s*0\.0040\s*<", text_of(client, asking))
    assert rows_of(client, f"{asking}&as=csv&table=groups")[0]["per_1m_tokens"] == "0.0040"


def test_the_change_is_told_apart_by_price_and_usage_to_the_cent(changed: None) -> None:
    text = text_of(signed_in("fin"), f"{WHY}&why=team")
    assert steps_of(text) == [
        ("September 2026", "30.00"), ("Price", "+10.00"), ("Usage", "+30.00"), ("Use ended", "−20.00"),
        ("October 2026", "50.00"),
    ]  # fmt: skip
    board = Board(
        period=BillingPeriod.objects.get(month="2026-10"), setup=BillingSetup.objects.get(), teams=Team.objects.all(),
        filters=Filters(), month=month_facets(BillingPeriod.objects.get(month="2026-10"), Team.objects.all()), now=NOW,
    ).bridge()  # fmt: skip
    assert board is not None
    assert [(effect.name, effect.amount) for effect in board.effects] == [
        ("price", Decimal("10.00")), ("usage", Decimal("30.00")), ("ended", Decimal("-20.00"))
    ]  # fmt: skip


@pytest.mark.parametrize(("month", "before", "effects"), [
    ("2026-11", "20.00", {"usage": "-10.00", "late": "30.00"}),
    ("2026-12", "10.00", {"usage": "10.00", "late": "30.00"}),
])  # fmt: skip
def test_what_came_late_is_not_counted_again_in_an_open_month_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, month: str, before: str, effects: dict[str, str]
) -> None:
    """October was closed at 20.00, 30.00 of it came late; November has 10.00, December 20.00. All but October are open."""
    now = datetime(2027, 1, 3, 4, tzinfo=UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    apply(tmp_path)
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=1))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_allocations(
        hold(2, "2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", quantity=1),
        hold(3, "2026-11-11T00:00:00Z", "2026-11-11T01:00:00Z", quantity=1),
        hold(4, "2026-12-01T00:00:00Z", "2026-12-01T02:00:00Z", quantity=1), now=now,
    )  # fmt: skip
    reader = Explorer(frozenset({"nlp", "cv"}), now, "Asia/Shanghai")
    found = reader.explore(reader.asked(QueryDict(f"month={month}")))
    why = Why.of(found, reader, "team")
    assert why is not None
    assert (found.total.before, why.bridge.before) == (Decimal(before), Decimal(before))
    assert {effect.name: str(effect.amount) for effect in why.bridge.effects} == effects
    assert (found.total.change, why.bridge.after) == (sum(map(Decimal, effects.values())), found.total.total)
    period, teams = period_shown(month, BillingSetup.objects.get()), Team.objects.all()
    spending = Board(period, BillingSetup.objects.get(), teams, Filters(), month_facets(period, teams), now).bridge()
    assert spending is None or spending.steps == why.bridge.steps


def test_the_change_by_job_names_the_new_one_and_leads_to_it(changed: None) -> None:
    text = text_of(signed_in("lead"), f"{WHY}&why=job")
    # pretrain: 2 h x (12.50 - 10.00) = 5.00 of price, 25.00 - 10.00 - 5.00 = 10.00 of usage; tune is new
    assert steps_of(text) == [
        ("September 2026", "10.00"), ("Price", "+5.00"), ("Usage", "+10.00"), ("Use begun", "+25.00"),
        ("October 2026", "50.00"),
    ]  # fmt: skip
    assert "cv" not in text
    names = re.findall(r'<a class="line-link" href="([^"]*)">([^<]*)</a>', text)
    assert [name for _, name in names] == ["tune", "pretrain"]
    assert "job=Job%2Ftune" in names[0][0]
    assert text_of(signed_in("lead"), f"/explorer/{names[0][0]}").count("25.00") >= 1


def test_notes_are_a_step_of_the_change_and_lead_to_the_note(changed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In October 50.00 of nlp; in November a credit note of 5.00, and nothing else; it is 3 December."""
    (note,) = credited("5.00")
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2026, 12, 3, 4, tzinfo=UTC))
    client = signed_in("lead")
    text = text_of(client, "/explorer/?month=2026-11&part=why&why=team")
    assert steps_of(text) == [
        ("October 2026", "50.00"), ("Use ended", "−50.00"), ("Credit notes and rebills", "−5.00"),
        ("November 2026", "−5.00"),
    ]  # fmt: skip
    assert re.search(r'href="(\?[^"]*kind=note[^"]*)">Credit notes and rebills', text) is not None
    page = text_of(client, "/explorer/?month=2026-11&by=kind")
    assert ("Credit notes and rebills" in page, f'href="/notes/{note.pk}/"' in page) == (True, True)


def test_a_change_is_split_by_nothing_else(changed: None) -> None:
    assert signed_in("fin").get(f"{WHY}&why=cluster").status_code == 404


def test_the_first_page_is_the_explorer_and_old_links_to_a_month_are_its_overview(used: None) -> None:
    client = signed_in("fin")
    assert client.get("/")["Location"] == "/explorer/"
    assert "<h1>Cost explorer</h1>" in client.get("/", follow=True).content.decode()
    assert "<h1>2026-10</h1>" in text_of(client, "/?month=2026-10")
    assert '<a href="/overview/' in text_of(client, "/explorer/")


def test_a_month_is_stacked_bars_by_team_with_names_totals_and_links(used: None) -> None:
    text = text_of(signed_in("fin"), "/explorer/?range=last-month")

    chart = chart_of(text)
    assert [(series["name"], series["kind"], series["values"][9], series["values"][14]) for series in chart["series"]] == [
        ("NLP Research", "stack", "25.00", "10.80"), ("Vision", "stack", "20.00", "0.00"),
    ]  # fmt: skip
    assert (len(chart["labels"]), chart["labels"][9], chart["axis"], chart["unit"]) == (31, "10 Oct", "CNY by day", "CNY")
    assert chart["series"][1]["links"][9] == "?from=2026-10-10&to=2026-10-10&by=namespace&team=cv"
    assert '<a class="line-link" href="?range=last-month&by=namespace&team=nlp">NLP Research</a>' in text
    assert "55.80" in text


def figure_links(text: str) -> list[tuple[str, str]]:
    """What the figures of the tables say, and where each leads."""
    found = re.findall(r'<a class="figure-link" href="([^"]*)">(.*?)</a>', text)
    return [(re.sub("<[^>]*>", "", figure), unescape(link)) for link, figure in found]


def test_every_figure_leads_to_what_it_is_made_of(used: None) -> None:
    """A bar to its day, a sum to the next dimension, a column to the same of its own metric, a change to its reasons."""
    columns = "team=cv&column=before&column=change&column=gpu_hours"
    text = text_of(signed_in("fin"), f"/explorer/?from=2026-10-09&to=2026-10-10&by=team&{columns}")
    assert figure_links(text) == [
        ("0.00", f"?from=2026-10-09&to=2026-10-09&by=namespace&{columns}"),
        ("20.00", f"?from=2026-10-10&to=2026-10-10&by=namespace&{columns}"),
        ("20.00", f"?from=2026-10-09&to=2026-10-10&by=namespace&{columns}"),
        ("0.00", f"?from=2026-10-07&to=2026-10-08&by=namespace&{columns}"),
        ("+20.00", f"?from=2026-10-09&to=2026-10-10&by=team&{columns}#why"),
        ("2.0", f"?from=2026-10-09&to=2026-10-10&metric=gpu_hours&by=namespace&{columns}"),
    ]


def test_from_a_rise_two_clicks_lead_to_the_job_and_its_line(used: None) -> None:
    client = signed_in("lead")
    day = text_of(client, "/explorer/?from=2026-10-10&to=2026-10-10&by=namespace&team=nlp")
    (link,) = re.findall(r'class="line-link" href="(\?[^"]*)"', day)
    jobs = text_of(client, f"/explorer/{link}")
    assert ("pretrain" in jobs, "25.00" in jobs) == (True, True)
    month = text_of(client, "/explorer/?range=last-month&by=job&namespace=nlp-train")
    (line,) = re.findall(r'href="(/teams/nlp/lines/[^"]+)"', month)
    assert "pretrain" in text_of(client, line)


def test_the_files_have_what_the_page_shows_exactly(used: None) -> None:
    client = signed_in("fin")
    asked = "/explorer/?range=last-month&by=team&column=share&column=gpu_hours&column=per_gpu_hour"
    assert rows_of(client, f"{asked}&table=groups&as=csv") == [
        {"team": "nlp", "team_name": "NLP Research", "cost": "35.80", "share": "0.641577060932", "gpu_hours": "2.500000",
         "per_gpu_hour": "10.0000"},
        {"team": "cv", "team_name": "Vision", "cost": "20.00", "share": "0.358422939068", "gpu_hours": "2.000000",
         "per_gpu_hour": "10.0000"},
    ]  # fmt: skip
    assert rows_of(client, f"{asked}&step=week&table=series&as=csv") == [
        {"from": "2026-10-05", "to": "2026-10-11", "team": "nlp", "team_name": "NLP Research", "cost": "25.00"},
        {"from": "2026-10-12", "to": "2026-10-18", "team": "nlp", "team_name": "NLP Research", "cost": "10.80"},
        {"from": "2026-10-05", "to": "2026-10-11", "team": "cv", "team_name": "Vision", "cost": "20.00"},
    ]
    sheet = openpyxl.load_workbook(io.BytesIO(client.get(f"{asked}&table=groups&as=xlsx").content)).active
    assert sheet is not None
    assert [cell.value for cell in sheet[2]][:3] == ["nlp", "NLP Research", 35.8]


def test_the_hours_of_a_day_are_bars_a_file_and_an_answer_of_the_api(used: None) -> None:
    """cv: from 10:00 to 12:00 local, 10.00 each."""
    client, day = signed_in("fin"), "from=2026-10-10&to=2026-10-10&by=team&team=cv&step=hour"
    chart = chart_of(text_of(client, f"/explorer/?{day}"))
    assert (len(chart["labels"]), chart["labels"][10], chart["axis"]) == (24, "10:00", "CNY by hour")
    assert chart["series"][0]["values"][9:13] == ["0.00", "10.00", "10.00", "0.00"]
    assert chart["series"][0]["links"][10] == "?from=2026-10-10&to=2026-10-10&step=hour&by=namespace&team=cv"
    assert rows_of(client, f"/explorer/?{day}&table=series&as=csv") == [
        {"from": "2026-10-10", "to": "2026-10-10", "hour": f"2026-10-10T{hour}:00:00+08:00", "team": "cv",
         "team_name": "Vision", "cost": "10.00"}
        for hour in (10, 11)
    ]  # fmt: skip
    found = program("invoices:read").get(f"/api/v1/explore?{day}").json()
    assert found["steps"][10] == {"from": "2026-10-10", "to": "2026-10-10", "hour": "2026-10-10T10:00:00+08:00"}
    assert found["groups"][0]["bars"][9:13] == ["0.00", "10.00", "10.00", "0.00"]


def test_more_hours_than_are_shown_are_days_and_the_page_says_so(used: None) -> None:
    client = signed_in("fin")
    text = text_of(client, "/explorer/?from=2026-09-30&to=2026-10-31&step=hour")
    assert len(chart_of(text)["labels"]) == 32
    assert "Hours are shown of at most 31 days" in text
    assert '<option value="hour"' not in text
    refused = program("invoices:read").get("/api/v1/explore?from=2026-09-30&to=2026-10-31&step=hour")
    assert refused.status_code == 400


def test_columns_sort_both_ways_and_the_head_says_how(used: None) -> None:
    text = text_of(signed_in("fin"), "/explorer/?range=last-month&sort=total")
    assert text.index(">Vision</a>", text.index("<tbody>", text.index("groups-title"))) < text.rindex(">NLP Research</a>")
    assert 'aria-sort="ascending"><a href="?range=last-month&by=team">' in text


def test_a_filter_is_a_chip_that_can_be_taken_off(used: None) -> None:
    text = text_of(signed_in("fin"), "/explorer/?range=last-month&team=cv&kind=gpu")
    assert 'href="?range=last-month&by=team&kind=gpu"' in text
    assert "20.00" in text
    assert "35.80" not in text


def test_a_lead_sees_no_name_and_no_figure_of_another_team(used: None) -> None:
    client = signed_in("lead")
    for asked in ("", "&by=team", "&team=cv", "&by=namespace&by=job", "&part=filters", "&by=team&table=groups&as=csv"):
        text = client.get(f"/explorer/?range=last-month{asked}").content.decode()
        assert ("Vision" in text, "20.00" in text) == (False, False), asked
    offered = text_of(client, "/explorer/?range=last-month&part=filters")
    assert ('value="nlp-train"' in offered, 'value="llama-3-8b"' in offered, 'value="cv"' in offered) == (True, True, False)


def test_what_is_not_billable_yet_and_not_complete_is_said(used: None) -> None:
    ingest_allocations(
        hold(7, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1, namespace="nobodys"),
        hold(8, "2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z", quantity=1), now=NOW,
    )  # fmt: skip
    MonthCube.objects.all().delete()
    text = text_of(signed_in("fin"), "/explorer/?range=this-month")
    assert "Live estimate, data through 2 Nov 11:00" in text
    assert "Usage without an owner" in text
    assert "30.00" in text


@pytest.mark.parametrize("address", ["?by=person", "?range=soon", "?metric=luck", "?table=people&as=csv", "?from=x"])
def test_what_cannot_be_asked_is_not_found(used: None, address: str) -> None:
    assert signed_in("fin").get(f"/explorer/{address}").status_code == 404


def test_a_range_without_anything_leads_on(used: None) -> None:
    text = text_of(signed_in("fin"), "/explorer/?from=2026-01-01&to=2026-01-31")
    assert "Nothing in January 2026" in text
    assert Decimal("0.00") == Decimal(re.findall(r'class="currency">CNY</span>([0-9.]+)', text)[0])


@pytest.fixture
def daily(used: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """nlp spends 5.00 on each day of November at 9:00 local; it is noon on the 11th, of a budget of 300.00."""
    noon = datetime(2026, 11, 11, 4, tzinfo=UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: noon)
    apply(tmp_path, budgets=[{"team": "nlp", "period": "month", "amount": "300.00", "thresholds": [80]}])
    first = datetime(2026, 11, 1, 1, tzinfo=UTC)
    starts = [first + timedelta(days=n) for n in range(11)]
    ingest_allocations(
        *(hold(100 + n, f"{at:%FT%T}Z", f"{at + timedelta(minutes=30):%FT%T}Z", quantity=1) for n, at in enumerate(starts)),
        now=noon,
    )  # fmt: skip
    watched(noon)
    days_store(now=noon)
    MonthCube.objects.all().delete()
    return noon


def test_a_running_month_has_its_forecast_and_the_budget_a_day(daily: datetime) -> None:
    """55.00 in 10.5 days go on at that rate for 19.5 days: 157.14, of which 102.14 over 19 days."""
    client = signed_in("lead")
    page, late = (text_of(client, f"/explorer/?range=this-month{part}") for part in ("", "&part=outlook"))

    assert [(series["name"], series["values"][0]) for series in chart_of(page)["series"]][-1] == ("Budget, a day", "10.00")
    assert ("Budget of the month" in page, "18.3% used" in page) == (True, True)
    forecast = {series["name"]: series["values"] for series in chart_of(late)["series"]}["Forecast, a day"]
    assert (forecast[:11], forecast[11:]) == ([None] * 11, ["5.38"] * 19)
    assert "157.14" in late
    assert "Budget of the month" not in text_of(client, "/explorer/?range=last-month")


@pytest.mark.parametrize("silent", [False, True])
def test_while_metering_is_silent_page_files_and_api_compare_with_nothing(daily: datetime, silent: bool) -> None:
    """50.00 in the ten days of November that passed, 45.00 in those of October. One cluster is silent since the 4th."""
    if silent:
        watched(datetime(2026, 11, 4, tzinfo=UTC), "edge-1")
    client = signed_in("fin")
    page = text_of(client, "/explorer/?range=this-month")
    answer = program("invoices:read").get("/api/v1/explore?range=this-month&by=none").json()
    body = client.get("/explorer/?range=this-month&by=none&table=groups&as=csv").content.decode()
    book = client.get("/explorer/?range=this-month&by=none&table=groups&as=xlsx").content
    sheet = list(openpyxl.load_workbook(io.BytesIO(book)).active.values)
    before, change = (None, None) if silent else ("45.00", "5.00")
    assert ("Not compared while metering is silent." in page, "Against " in page) == (silent, True)
    assert answer["total"] == {"total": "55.00", "before": before, "change": change}
    assert answer["compared"] == (None if silent else {"from": "2026-10-01", "to": "2026-10-10"})
    row = dict(zip(*(line.split(",") for line in body.removeprefix("\ufeff").splitlines()), strict=True))
    assert (row["cost"], row["before"], row["change"]) == ("55.00", before or "", change or "")
    written = dict(zip(*sheet, strict=True))
    assert (written["before"], written["change"]) == ((None, None) if silent else (45, 5))


def test_before_the_fourth_day_of_a_month_nothing_is_forecast(used: None) -> None:
    late = text_of(signed_in("fin"), "/explorer/?range=this-month&part=outlook")
    assert "Forecast, a day" not in late


def test_what_no_budget_can_be_about_has_no_forecast(used: None) -> None:
    client = signed_in("fin")
    for asked in ("&queue=gold", "&search=n", "&metric=gpu_hours", "&kind=gpu"):
        assert "Expected at the end of the month" not in text_of(client, f"/explorer/?range=this-month{asked}"), asked


def test_the_api_answers_the_same_question_with_the_same_figures_for_the_same_teams(used: None) -> None:
    asked = "/api/v1/explore?range=last-month&by=team&step=month&column=gpu_hours"
    answers = {}
    for team in ("nlp", ""):
        reader = program("invoices:read", team=team)
        answers[team] = reader.get(asked).json()
        wrong = reader.get("/api/v1/explore?by=person")
        assert (wrong.status_code, wrong["Content-Type"]) == (400, "application/problem+json")
    nlp = {"names": {"team": "nlp"}, "total": "35.80", "gpu_hours": "2.500000", "bars": ["35.80"]}
    cv = {"names": {"team": "cv"}, "total": "20.00", "gpu_hours": "2.000000", "bars": ["20.00"]}
    assert (answers["nlp"]["groups"], answers[""]["groups"]) == ([nlp], [nlp, cv])
    assert answers["nlp"]["total"] == {"total": "35.80", "gpu_hours": "2.500000"}
    assert answers[""]["steps"] == [{"from": "2026-10-01", "to": "2026-10-31"}]


def test_the_page_opens_with_the_last_month_until_two_days_of_this_one_are_complete(used: None) -> None:
    client = signed_in("lead")
    assert '<option value="last-month" selected>' in text_of(client, "/explorer/")
    ingest_allocations(hold(8, "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z", quantity=1), now=NOW)
    watched(NOW)
    assert '<option value="this-month" selected>' in text_of(client, "/explorer/")


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two closed months that differ in every way (`two_months`); it is 3 November."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    two_months(tmp_path)
    person("fin", "finance")
    person("lead", "lead", team="nlp")


WHY = "/explorer/?range=last-month&part=why"


def steps_of(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"<dt>(?:<a[^>]*>)?([^<]*)(?:</a>)?</dt><dd[^>]*>([^<]*)</dd>", text)
    return [(name.strip(), amount.strip()) for name, amount in found]


def credited(amount: str) -> list[Note]:
    """So much off the first line of nlp's invoice of October, by a note of November."""
    person("sam", "finance")
    person("boss", "approver")
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    number = str(Invoice.objects.get(team__code="nlp", period__month="2026-10").number)
    return credit(part(amount), number=number, by="boss")


def test_what_a_budget_has_left_leaves_notes_out_as_the_page_of_the_budget_does(daily: datetime) -> None:
    credited("5.00")
    MonthCube.objects.all().delete()
    text = text_of(signed_in("lead"), "/explorer/?range=this-month")
    assert ("50.00" in text, "18.3% used" in text) == (True, True)  # 55.00 of 300.00 were used, and 5.00 credited


def test_a_fiscal_year_begins_with_the_month_of_the_setting(used: None, settings: Any) -> None:
    """On 3 November 2026, with years from April: the page, the API and a view's address ask for the same days."""
    settings.FISCAL_YEAR_START = 4
    text = text_of(signed_in("fin"), "/explorer/?range=this-year")
    assert '<option value="this-year" selected>This fiscal year</option>' in text
    assert "FY2027 · 1 Apr – 31 Mar 2027" in text
    assert "FY2027 Q2 · 1 Jul – 30 Sep" in text_of(signed_in("fin"), "/explorer/?range=last-quarter")
    reader = program("invoices:read")
    days = {
        name: (found["from"], found["to"])
        for name in ("this-year", "last-year", "this-quarter", "last-quarter")
        for found in [reader.get(f"/api/v1/explore?range={name}").json()]
    }
    assert days == {
        "this-year": ("2026-04-01", "2027-03-31"), "last-year": ("2025-04-01", "2026-03-31"),
        "this-quarter": ("2026-10-01", "2026-12-31"), "last-quarter": ("2026-07-01", "2026-09-30"),
    }  # fmt: skip


@pytest.mark.parametrize(("asking", "part"), [
    ("range=this-month", False), ("from=2026-10-01&to=2026-11-11", False), ("range=this-month&team=nlp", False),
    ("range=last-7-days", True), ("from=2026-11-11&to=2026-11-11", True), ("from=2026-11-01&to=2026-11-10", True),
    ("range=this-month&namespace=nlp-train", True), ("range=this-month&search=nlp", True),
])  # fmt: skip
def test_what_cannot_be_billed_is_the_whole_months_and_says_so_beside_a_part_of_it(
    daily: datetime, asking: str, part: bool
) -> None:
    """Two hours of nobody's and one of nlp's on a device without a price, both on 2 November: the 11th has neither."""
    ingest_allocations(
        hold(200, "2026-11-02T00:00:00Z", "2026-11-02T02:00:00Z", quantity=1, namespace="nobodys"),
        hold(201, "2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z", quantity=1, accelerator="NVIDIA-L20"), now=daily,
    )  # fmt: skip
    MonthCube.objects.all().delete()
    text = text_of(signed_in("fin"), f"/explorer/?{asking}")
    assert ("Not billable yet" in text, "Used in 2026-11, and in no total" in text) == (True, True)
    assert ("It is all of 2026-11, whatever part of that is selected above." in text) is part
    assert 'href="/close/?month=2026-11"' in text


def test_what_cannot_be_billed_of_a_month_is_named_on_its_overview(daily: datetime) -> None:
    ingest_allocations(hold(200, "2026-11-02T00:00:00Z", "2026-11-02T02:00:00Z", quantity=1, namespace="nobodys"), now=daily)
    text = text_of(signed_in("fin"), "/overview/?month=2026-11")
    assert ("Used in 2026-11, and in no total" in text, "It is all of" in text) == (True, False)


def test_a_mean_of_days_counts_none_before_there_was_anything_to_know(used: None) -> None:
    """55.80 in the 31 days of October and three of November, the first of all; of cv 20.00 in the days since 10 October."""
    asked = "/explorer/?from=2026-08-01&to=2026-11-03"
    assert signed_in("fin").get(asked).context["page"].mean_text == "1.64"
    NamespaceOwnership.objects.filter(team__code="cv").update(valid_from=datetime(2026, 10, 9, 16, tzinfo=UTC))
    assert signed_in("fin").get(f"{asked}&team=cv").context["page"].mean_text == "0.80"
