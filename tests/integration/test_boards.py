"""What the boards say: sums without what is only shown, notes counted once, files that hold what the page shows."""

import html
import io
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.budgets.models import CostAnomaly
from billing.budgets.services import days_store
from billing.closing.services.closing import period_close
from billing.corrections.services.disputes import Claim, dispute_open
from billing.invoices.models import Invoice
from billing.portal.tables import Column, Table, csv_of, xlsx_of
from billing.tenancy.models import Team
from billing.usage.gpu_time_by_job import devices_by_week_hour
from metering.intervals import Interval
from tests import factories
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record, watched
from tests.factories.boards import SHEET, board, october
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, bill, credit, whole
from tests.factories.months import DECEMBER_OVER
from tests.factories.pages import rows_of
from tests.factories.usage import hold

__all__ = ["october"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance(db: None) -> Client:
    return signed_in(person("everything", "finance"))


@pytest.fixture
def issued(october: None, db: None) -> None:
    """October is issued; in November 4.00 of nlp's first line are credited."""
    bill()
    credit(whole(1, amount=Decimal("4.00")), number=str(Invoice.objects.get(shadow=False).number))


def page(client: Client, address: str) -> Any:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return response


def test_no_cell_of_a_file_is_a_formula() -> None:
    rows = [["=1+1", 3], ["@cmd", None], [" +x", -2], ["http://a", 0]]
    table = Table("names", [Column("name"), Column("n", "count")], rows)

    assert csv_of(table).decode("utf-8-sig").splitlines() == ["name,n", "'=1+1,3", "'@cmd,", "' +x,-2", "http://a,0"]
    sheet = openpyxl.load_workbook(io.BytesIO(xlsx_of(table))).active
    assert [(row[0].value, row[0].data_type, row[1].value) for row in sheet.iter_rows(min_row=2)] == [
        ("'=1+1", "s", 3), ("'@cmd", "s", None), ("' +x", "s", -2), ("http://a", "s", 0),
    ]  # fmt: skip
    assert [cell.hyperlink for cell in sheet["A"]] == [None] * 5


SLICE = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(("asked", "amount"), [("NVIDIA-H800", "55.00"), (SLICE, "11.00")])
def test_a_filter_by_accelerator_counts_what_its_row_and_the_explorer_count(
    tmp_path: Path, finance: Client, asked: str, amount: str
) -> None:
    """5.5 hours of a card at 10.00, and of a slice at 2.00 that is priced on it by its own name; a Saturday of five."""
    first = SET_UP["price_versions"][0]
    slices = {"accelerator": "NVIDIA-H800", "resource": SLICE, "price_per_slice_hour": "2.0000"}
    apply(tmp_path, price_versions=[{**first, "gpu": [first["gpu"][0], slices]}])
    span = ("2026-10-10T00:00:00Z", "2026-10-10T05:30:00Z")
    ingest_allocations(hold(1, *span, quantity=1), hold(2, *span, quantity=1, resource=SLICE))
    for _ in range(2):
        assert shown_rows(page(finance, f"/spending/?month=2026-10&accelerator={asked}")) == [("nlp", amount)]
        assert (asked, amount) in shown_rows(page(finance, "/spending/?month=2026-10&by=accelerator"))
        explored = page(finance, f"/explorer/?month=2026-10&accelerator={asked}").context["found"]
        assert str(explored.total.total) == amount
        (heat,) = board("2026-10", OCTOBER_OVER, accelerator=asked).heat()
        assert [str(cell.mean) for cell in heat.days[5][7:15]] == ["0.0", "0.2", "0.2", "0.2", "0.2", "0.2", "0.1", "0.0"]
        period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)


def test_the_recovery_of_a_pool_counts_idle_hours_at_what_an_hour_costs(tmp_path: Path, finance: Client) -> None:
    """43,800 over a year are 5 an hour (unsold hours, another 5, are not of the hour): 24 offered hours cost 120.00.

    At 16 an hour 4 charged hours bring 64.00; 2 hours of the platform cost 10.00, tokens bring 10.80; 18 hours are idle.
    """
    versions = [{**SET_UP["price_versions"][0], "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}]}]
    apply(tmp_path, cost_sheets=[{"name": "h800", "sheet": SHEET}], price_versions=versions)
    ingest_allocations(
        hold(1, "2026-10-11T00:00:00Z", "2026-10-11T02:00:00Z", quantity=2, namespace="cv"),
        hold(2, "2026-10-11T00:00:00Z", "2026-10-11T01:00:00Z", quantity=2, namespace="serving"),
    )
    ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))
    offered = {"from": "2026-10-11T00:00:00Z", "until": "2026-10-11T06:00:00Z"}
    factories.ingest_capacity(
        cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=4, **offered
    )
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)

    found = page(finance, "/recovery/?month=2026-10").context["recovery"]

    (pool,) = found.pools
    assert (pool.charged, pool.platform, pool.idle, pool.offered) == (4, 2, 18, 24)
    assert (pool.hour_cost, pool.cost, pool.billed) == (5, Decimal("120.00"), Decimal("64.00"))
    assert (found.tokens.billed, found.tokens.cost) == (Decimal("10.80"), Decimal("10.00"))
    assert (found.billed, found.cost, found.recovered) == (Decimal("74.80"), Decimal("120.00"), Decimal("74.80") / 120)
    assert (found.hours, found.of_pools) == ({"charged": 4, "idle": 18, "offered": 24}, Decimal("64.00"))
    assert [(item.token_class, item.price, item.cost) for item in found.margins] == [
        ("input", Decimal("2.0000"), None), ("output", Decimal("8.0000"), None),
    ]  # fmt: skip
    with CaptureQueriesContext(connection) as queries:
        page(finance, "/recovery/?month=2026-10")
    assert len(queries) <= 43  # thirteen of them for what waits, in the menu


def test_a_pool_of_which_more_was_held_than_its_nodes_reported_costs_what_was_held(tmp_path: Path, finance: Client) -> None:
    """24 hours at 5.00, half of them reported as offered: 120.00, not 60.00 of which 384.00 would be 640 %. None is idle."""
    versions = [{**SET_UP["price_versions"][0], "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}]}]
    apply(tmp_path, cost_sheets=[{"name": "h800", "sheet": SHEET}], price_versions=versions)
    ingest_allocations(hold(1, "2026-10-11T00:00:00Z", "2026-10-11T06:00:00Z", quantity=4))
    factories.ingest_capacity(
        cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=4,
        **{"from": "2026-10-11T00:00:00Z", "until": "2026-10-11T03:00:00Z"},
    )  # fmt: skip
    (pool,) = page(finance, "/recovery/?month=2026-10").context["recovery"].pools
    assert (pool.charged, pool.offered, pool.idle) == (24, 12, 0)
    assert (pool.cost, pool.billed, pool.recovered) == (Decimal("120.00"), Decimal("384.00"), Decimal("3.2"))


def test_an_idle_hour_of_a_pool_costs_no_energy(tmp_path: Path, finance: Client) -> None:
    """1 kW at 2.00 is in the price once an hour is used: 24 offered hours x 5 and 4 used ones x 2 are 128.00."""
    versions = [{**SET_UP["price_versions"][0], "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}]}]
    sheet = {**SHEET, "gpu_power_kw": "1", "electricity_price_per_kwh": "2"}
    apply(tmp_path, cost_sheets=[{"name": "h800", "sheet": sheet}], price_versions=versions)
    ingest_allocations(hold(1, "2026-10-11T00:00:00Z", "2026-10-11T01:00:00Z", quantity=4))
    factories.ingest_capacity(
        cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=4,
        **{"from": "2026-10-11T00:00:00Z", "until": "2026-10-11T06:00:00Z"},
    )  # fmt: skip
    (pool,) = page(finance, "/recovery/?month=2026-10").context["recovery"].pools
    assert (pool.idle, pool.hour_cost, pool.cost) == (20, 7, Decimal("128.00"))


def test_a_credit_note_counts_in_the_month_that_it_was_issued_in(issued: None, finance: Client) -> None:
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)

    response = page(finance, "/?month=2026-11")
    assert [(point.month, point.total) for point in response.context["trend"]] == [
        ("2026-10", Decimal("220.42")), ("2026-11", Decimal("-4.00")),
    ]  # fmt: skip
    assert response.context["net"].noted == Decimal("-4.00")
    assert "Credit notes and rebills of the month" in response.content.decode()


def test_the_teams_of_the_overview_as_files(issued: None, finance: Client) -> None:
    rows = rows_of(finance, "/?month=2026-10&table=teams&as=csv")
    assert [(row["team"], row["mode"], row["total"]) for row in rows] == [
        ("nlp", "chargeback", "220.42"), ("cv", "shadow", "72.00"),
    ]  # fmt: skip

    response = page(finance, "/?month=2026-10&table=teams&as=xlsx")
    assert response["Content-Disposition"] == "attachment; filename*=UTF-8''teams-2026-10.xlsx"
    sheet = openpyxl.load_workbook(io.BytesIO(response.content)).active
    assert [cell.value for cell in sheet["K"]] == ["total", 220.42, 72]
    assert sheet["K2"].data_type == "n"


def test_a_table_that_the_page_does_not_have_is_not_there(issued: None, finance: Client) -> None:
    assert finance.get("/?table=people&as=csv").status_code == 404
    assert finance.get("/?table=teams&as=exe").status_code == 404


def shown_rows(response: Any) -> list[tuple[str, str]]:
    return [(row.label, str(row.total)) for row in response.context["rows"]]


@pytest.fixture
def queues(october: None, db: None) -> None:
    """Two more jobs of nlp: 6 GPU-hours in queue gold (60.00) and 4 in silver (40.00)."""
    ingest_allocations(
        hold(7, "2026-10-12T00:00:00Z", "2026-10-12T03:00:00Z", quantity=2, queue="gold"),
        hold(8, "2026-10-13T00:00:00Z", "2026-10-13T04:00:00Z", quantity=1, queue="silver"),
    )


def test_queues_and_workloads_are_filters_of_page_and_file(queues: None, finance: Client) -> None:
    """Before the close from the preview, after it from the invoice; the file holds what the page shows."""
    wanted: list[tuple[str, str, list[tuple[str, str]]]] = [
        ("queue=gold", "team", [("nlp", "269.62")]),
        ("queue=gold", "workload", [("PyTorchJob/pretrain", "209.62"), ("pod/uid-7", "60.00")]),
        ("queue=silver", "namespace", [("nlp-train", "40.00")]),
        ("queue=silver", "accelerator", [("NVIDIA-H800", "40.00")]),
        ("workload=pod/uid-7", "queue", [("gold", "60.00")]),
        ("queue=gold&workload=pod/uid-8", "team", []),
        ("queue=gold&model=llama-3-8b", "team", []),
        ("queue=gold&namespace=nlp-train&site=hq-1&team=nlp", "site", [("hq-1", "269.62")]),
    ]
    for closed in (False, True):
        if closed:
            period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
        for asked, by, expected in wanted:
            response = page(finance, f"/spending/?month=2026-10&by={by}&{asked}")
            assert shown_rows(response) == expected, (closed, asked)
            assert response.context["total"] == sum((Decimal(total) for _, total in expected), Decimal(0))
            link = f"/spending/?month=2026-10&by={by}&{asked}&table=split&as=csv"
            assert [(row[by], row["total"]) for row in rows_of(finance, link)] == expected, (closed, asked)


def test_a_queue_leads_to_its_workloads_and_says_why_and_when(queues: None, finance: Client) -> None:
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_allocations(hold(9, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1, queue="gold"))
    watched(timezone.now())
    text = page(finance, "/spending/?month=2026-10&by=queue").content.decode()
    assert "month=2026-10&amp;by=workload&amp;queue=gold" in text
    assert '<option value="silver">silver</option>' in text
    later = page(finance, "/spending/?month=2026-11&by=team&queue=gold")
    assert (shown_rows(later), later.context["last"]) == ([("nlp", "30.00")], Decimal("269.62"))
    bridge = page(finance, "/spending/?month=2026-11&queue=gold&part=why").context["bridge"]
    assert (bridge.before, bridge.after) == (Decimal("269.62"), Decimal("30.00"))
    assert [(effect.name, effect.amount) for effect in bridge.effects] == [("usage", Decimal("-239.62"))]
    (heat,) = board("2026-10", OCTOBER_OVER, queue="silver").heat()
    used = {(day, cell.hour): str(cell.mean) for day, cells in enumerate(heat.days) for cell in cells if cell.mean}
    assert used == {(1, hour): "0.3" for hour in (8, 9, 10, 11)}  # one device on one of four Tuesdays


def test_a_queue_of_a_running_month_says_why_it_has_no_forecast(
    queues: None, finance: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast goes by days, and days are not kept by queue; a month that is over has none either way."""
    none = "No forecast: what a queue or a workload cost on each day is not kept."
    for at, expected in ((datetime(2026, 10, 20, 16, tzinfo=UTC), True), (OCTOBER_OVER, False)):
        monkeypatch.setattr("django.utils.timezone.now", lambda at=at: at)
        pages = [page(finance, f"/spending/?month=2026-10{asked}").content.decode() for asked in ("&queue=gold", "")]
        assert [none in text for text in pages] == [expected, False]
        assert ["part=end" in text for text in pages] == [False, expected]


def test_teams_of_a_split_have_their_names(issued: None, finance: Client) -> None:
    response = page(finance, "/spending/?month=2026-10")
    assert response.context["team_names"]["nlp"] == "NLP Research"
    assert 'NLP Research</a><span class="under">nlp</span>' in response.content.decode()


def test_what_is_too_much_to_share_out_over_jobs_asks_which_team(
    queues: None, finance: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so and leads on; the file takes its time."""
    monkeypatch.setattr("billing.portal.board.JOBS_OF", 0)
    for address in ("/spending/?month=2026-10&by=workload", "/spending/?month=2026-10&by=team&queue=gold"):
        response = page(finance, address)
        assert [row.label for row in response.context["narrow"]] == ["nlp"]
        assert "team=nlp" in response.content.decode()
    assert page(finance, "/spending/?month=2026-10&part=why&queue=gold").context["bridge"] is None
    rows = rows_of(finance, "/spending/?month=2026-10&by=queue&table=split&as=csv")
    assert [row["total"] for row in rows] == ["269.62", "40.00", "10.80"]


def test_where_names_are_too_many_they_are_written(
    queues: None, finance: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A team by its code, its name or its cost centre; what names no one team is not there."""
    for place in ("billing.portal.board", "billing.portal.views.boards"):
        monkeypatch.setattr(f"{place}.OFFERED", 0)
    text = page(finance, "/spending/?month=2026-10").content.decode()
    for name in ("team", "namespace", "queue", "model", "accelerator", "site", "consumer", "workload"):
        assert f'<input type="text" name="{name}"' in text
    for asked in ("nlp", "NLP", "nlp research", "cc-210"):
        assert page(finance, f"/spending/?month=2026-10&team={asked}").context["filters"].team == "nlp"
    assert finance.get("/spending/?month=2026-10&team=nobody").status_code == 404


def test_the_hours_of_the_week_are_means_over_the_days_of_the_month(october: None) -> None:
    """8 devices on one of five Saturdays from 8:00 to 10:37:13; 2,400,000 tokens on one of five Thursdays at 12."""
    devices, tokens = board("2026-10", OCTOBER_OVER).heat()

    used = {(day, cell.hour): str(cell.mean) for day, cells in enumerate(devices.days) for cell in cells if cell.mean}
    assert used == {(5, 8): "1.6", (5, 9): "1.6", (5, 10): "1.0"}
    assert [cell.shade for cell in devices.days[5][7:12]] == [0, 9, 9, 6, 0]
    assert [(cell.hour, cell.mean) for cell in tokens.days[3] if cell.mean] == [(12, Decimal(480_000))]
    assert board("2026-10", OCTOBER_OVER, model="llama-3-8b").heat() == [tokens]


def test_the_hours_of_the_week_add_up_to_what_was_held(october: None) -> None:
    """Two weeks of odd starts and ends, in any order: the same device time as the holds, hour by hour."""
    ingest_allocations(
        hold(7, "2026-10-03T12:34:56Z", "2026-10-05T01:02:03Z", quantity=3),
        hold(8, "2026-10-03T12:40:00Z", "2026-10-03T12:50:00Z", quantity=1),
        hold(9, "2026-10-31T15:00:00Z", "2026-10-31T18:00:00Z", quantity=2),
    )
    period = board("2026-10", OCTOBER_OVER).period
    held = devices_by_week_hour(Interval(period.start, period.end), period.zone, {("hq-1", "nlp-train")})

    seconds = 8 * 9433 + 3 * 131_227 + 600 + 2 * 3600
    assert sum(sum(hours.values()) for hours in held.values()) == seconds * 1_000_000


def test_a_running_month_says_where_it_will_end(october: None) -> None:
    """220.422222 in 20 of 31 days: 341.654444 at this rate, less what rounding of lines left out so far."""
    at = datetime(2026, 10, 20, 16, tzinfo=UTC)
    watched(at)
    days_store(now=at)

    expected = board("2026-10", at).expected()

    assert expected is not None
    assert (expected.p50, expected.p10, expected.p90, expected.method) == (Decimal("341.65"), None, None, "line")
    assert board("2026-10", OCTOBER_OVER).expected() is None


def test_a_running_month_is_compared_with_as_much_of_the_last(october: None) -> None:
    """10 days of November against those of October: 209.62 of the 10th came after the 10 days, so nothing is compared."""
    ingest_allocations(hold(7, "2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z", quantity=4))

    watched(datetime(2026, 11, 10, 16, tzinfo=UTC))
    assert board("2026-11", datetime(2026, 11, 9, 16, tzinfo=UTC)).bridge() is None
    later = board("2026-11", datetime(2026, 11, 10, 16, tzinfo=UTC)).bridge()
    assert later is not None
    assert [(effect.name, str(effect.amount)) for effect in later.effects] == [("usage", "-169.62")]
    assert (later.before, later.after) == (Decimal("209.62"), Decimal("40.00"))


def test_a_month_is_compared_with_the_invoices_of_the_last(issued: None, finance: Client) -> None:
    ingest_allocations(hold(7, "2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z", quantity=4), now=NOVEMBER_OVER)
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)

    response = page(finance, "/spending/?month=2026-11&team=nlp")
    assert (response.context["board"].total, response.context["last"]) == (Decimal("40.00"), Decimal("220.42"))
    assert page(finance, "/spending/?month=2026-11&team=nlp&model=llama-3-8b").context["last"] == Decimal("10.80")
    why = page(finance, "/spending/?month=2026-11&team=nlp&part=why").context["bridge"]
    assert [(effect.name, str(effect.amount)) for effect in why.effects] == [("usage", "-169.62"), ("ended", "-10.80")]


def test_jobs_that_waste_come_with_what_they_wasted(issued: None, finance: Client) -> None:
    """6 GPU-hours at HFU 0.15: 5.1 of them computed nothing."""
    wasting = page(finance, "/spending/?month=2026-10&team=cv").context["wasting"]

    assert [(item.job, item.reason.partition(":")[0], item.wasted) for item in wasting] == [
        ("pod/uid-2", "penalty", Decimal("18360"))
    ]
    text = page(finance, "/spending/?month=2026-10&team=cv&table=wasting&as=csv").content.decode("utf-8-sig")
    assert text.splitlines()[1].startswith("cv,hq-1,cv,pod/uid-2,0.1")


def test_a_member_sees_the_spending_of_their_teams_only(issued: None) -> None:
    client = signed_in(person("mia", "viewer", team="nlp"))

    assert shown_rows(page(client, "/spending/?month=2026-10")) == [("nlp", "220.42")]
    assert client.get("/spending/?month=2026-10&team=cv").status_code == 404
    text = page(client, "/spending/?month=2026-10&by=team&table=split&as=csv").content.decode("utf-8-sig")
    assert text.splitlines() == [
        "month,team,gpu,tokens,adjustments,idle,shared,total", "2026-10,nlp,209.62,10.80,0.00,0.00,0.00,220.42",
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["", "&part=why", "&part=end", "&part=hours", "&by=workload"])
@pytest.mark.parametrize("month", ["2026-10", "2026-11"])
def test_a_board_takes_few_queries(issued: None, finance: Client, month: str, part: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        page(finance, f"/spending/?month={month}{part}")

    assert len(queries) <= 43  # thirteen of them for what waits, in the menu


def test_months_are_compared_net_of_notes(issued: None, finance: Client) -> None:
    months = page(finance, "/recovery/?month=2026-10").context["months"]

    assert [(item.month, item.net, item.change) for item in months] == [
        ("2026-11", None, None), ("2026-10", Decimal("220.42"), None),
    ]  # fmt: skip
    assert [item.closed for item in months] == [False, True]
    text = page(finance, "/recovery/?month=2026-10&table=months&as=csv").content.decode("utf-8-sig")
    assert text.splitlines()[1:] == [
        "2026-11,,,,,,-4.00,,,open,", "2026-10,209.62,10.80,0.00,0.00,0.00,0.00,220.42,,closed,",
    ]  # fmt: skip


def test_a_month_is_compared_once_it_is_closed(issued: None, finance: Client) -> None:
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    months = page(finance, "/recovery/?month=2026-10").context["months"]
    assert [(item.month, item.change) for item in months] == [("2026-11", Decimal("-224.42")), ("2026-10", None)]


@pytest.mark.parametrize("closed", [False, True])
def test_a_month_is_compared_with_the_one_before_or_with_nothing(october: None, finance: Client, closed: bool) -> None:
    """October was 220.42, December is 10.00 for an hour; November is not listed: it has nothing, or is open."""
    bill()
    ingest_allocations(hold(9, "2026-12-02T00:00:00Z", "2026-12-02T01:00:00Z", quantity=1), now=DECEMBER_OVER)
    for month, over in (("2026-11", NOVEMBER_OVER), ("2026-12", DECEMBER_OVER)):
        if closed or month == "2026-12":
            period_close(month=month, actor="ops", now=over)
    months = page(finance, "/recovery/?month=2026-10").context["months"]
    assert [(item.month, item.net, item.change) for item in months if item.closed and item.net] == [
        ("2026-12", Decimal("10.00"), Decimal("10.00") if closed else None), ("2026-10", Decimal("220.42"), None),
    ]  # fmt: skip


def test_every_download_that_a_page_offers_is_there(issued: None, finance: Client) -> None:
    """Every CSV and XLSX link of the pages with tables, fragments included, answers with a file that opens."""
    team = Team.objects.get(code="nlp")
    CostAnomaly.objects.create(
        team=team, kind="gpu", sku="NVIDIA-H800", day="2026-10-10", amount=9, median=1, mad=1, z=8, basis="own",
        found_at=OCTOBER_OVER,
    )  # fmt: skip
    number = str(Invoice.objects.get(shadow=False).number)
    dispute_open(claim=Claim(number, [2], "sla", "a test"), actor="sam", now=OCTOBER_OVER)
    offered = []
    for path in ("/overview/", "/teams/nlp/?month=2026-10", "/spending/?month=2026-10",
                 "/spending/?month=2026-10&part=hours",
                 "/spending/?month=2026-10&part=why", "/invoices/", "/ownership/", "/close/?month=2026-10", "/budgets/",
                 "/recovery/?month=2026-10", "/audit/", "/search/?q=2026", "/corrections/", "/disputes/",
                 "/anomalies/"):  # fmt: skip
        links = re.findall(r'href="([^"]*[?&;]as=(?:csv|xlsx)[^"]*)"', page(finance, path).content.decode())
        offered += [(path, html.unescape(link)) for link in links]

    assert len({path for path, _ in offered}) >= 13
    for path, link in offered:
        response = page(finance, link)
        assert link.startswith(path.partition("?")[0])
        if "as=csv" in link:
            assert len(response.content.decode("utf-8-sig").splitlines()) >= 1
        else:
            assert openpyxl.load_workbook(io.BytesIO(response.content)).active["A1"].value


def test_the_lines_of_a_team_leave_as_numbers(issued: None, finance: Client) -> None:
    rows = rows_of(finance, "/teams/nlp/?month=2026-10&table=lines&as=csv")

    assert [(row["kind"], row["quantity"], row["amount"]) for row in rows] == [
        ("gpu", "20.962222", "209.62"), ("tokens", "1.400000", "2.80"), ("tokens", "1.000000", "8.00"),
    ]  # fmt: skip
