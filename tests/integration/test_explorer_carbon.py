"""Kilograms of CO2 in the explorer, by hand: energy of the devices x factor of their grid, in every grouping.

A GPU-hour takes (0.7 + 2.4 / 8) kW x 1.3 = 1.3 kWh. The grid of hq-1 emits 0.5306 kg per kWh, that of hq-2 0.55.

| Line | GPU-hours | kWh | kg |
|---|---|---|---|
| nlp, hq-1 | 4 x 3 h of pretrain on the 10th, 1.5 h of eval on the 10th, 1.5 h on the 11th = 15 | 19.5 | 10.3467 = 10.347 |
| cv, hq-1 | 2 x 1 h on the 12th = 2 | 2.6 | 1.37956 = 1.380 |
| cv, hq-2 | 3 x 20 min on the 12th = 1 | 1.3 | 0.715 |

Of the 10.347 the 10th has 13.5 of 15 hours, 9312.3 g, and the 11th 1034.7 g: 9.312 and 1.035. Of the 9.312 pretrain has
12 of 13.5 hours, 8277.33 g, and eval 1034.67 g: 8.277 and 1.035.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict
from django.test import Client

from billing.explorer.models import MonthCube
from billing.explorer.selectors import Explored, Explorer
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from tests.factories import AFTER, SET_UP, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.carbon import PRICES, SHEET
from tests.factories.corrections import bill
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 5, 4, tzinfo=UTC)
SAYS = {"valid_from": "2026-01-01", "market_kg_per_kwh": "0", "source": "average of the grid"}
BY_HAND = {
    "team": {"nlp": "10.347", "cv": "2.095"},
    "cluster": {"hq-1": "11.727", "hq-2": "0.715"},
    "namespace": {"nlp-train": "10.347", "cv": "2.095"},
    "accelerator": {"NVIDIA-H800": "12.442"},
    "kind": {"gpu": "12.442"},
    "job": {"Job/pretrain": "8.277", "Job/eval": "2.070", "Job/detect": "2.095"},
    "site": {"north": "8.277", "": "4.165"},
    "consumer": {"": "12.442"},
    "model": {"": "12.442"},
}


@pytest.fixture(scope="module")
def used(for_all_tests: Path) -> None:
    others = [("hq-2", "cv", "cv"), ("hq-3", "nlp", "nlp")]
    owners = [
        *SET_UP["ownership"],
        *({"cluster": cluster, "namespace": namespace, "team": team, "valid_from": "2026-01-01"}
          for cluster, namespace, team in others),
    ]  # fmt: skip
    devices = [*PRICES[0]["gpu"], {"accelerator": "NVIDIA-A800", "price_per_gpu_hour": "5"}]
    prices = [{**PRICES[0], "gpu": devices, "tokens": SET_UP["price_versions"][0]["tokens"]}]
    apply(
        for_all_tests, ownership=owners, cost_sheets=[{"name": "h800", **SHEET}], price_versions=prices,
        carbon=[{**SAYS, "cluster": "hq-1", "location_kg_per_kwh": "0.5306"},
                {**SAYS, "cluster": "hq-2", "location_kg_per_kwh": "0.55"}],
    )  # fmt: skip
    detect = {"kind": "Job", "name": "detect"}
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T03:00:00Z", quantity=4, site="north",
             workload={"kind": "Job", "name": "pretrain"}),
        hold(2, "2026-10-10T14:30:00Z", "2026-10-10T17:30:00Z", quantity=1, workload={"kind": "Job", "name": "eval"}),
        hold(3, "2026-10-12T02:00:00Z", "2026-10-12T03:00:00Z", quantity=2, namespace="cv", workload=detect),
        hold(4, "2026-10-12T02:00:00Z", "2026-10-12T02:20:00Z", quantity=3, namespace="cv", cluster="hq-2",
             workload=detect),
    )  # fmt: skip
    ingest_tokens(token_record(input_tokens=1_000_000))


def explored(text: str, *teams: str) -> Explored:
    explorer = Explorer(frozenset(teams or ("nlp", "cv")), NOW, "Asia/Shanghai")
    return explorer.explore(explorer.asked(QueryDict(text if "from=" in text else f"month=2026-10&{text}")))


def kilograms(by: str) -> dict[str, Decimal]:
    return {one.names[0]: one.total for one in explored(f"metric=co2&by={by}").groups if one.total}


def assert_by_hand() -> None:
    for by, expected in BY_HAND.items():
        assert kilograms(by) == {name: Decimal(kg) for name, kg in expected.items()}, by
    assert explored("metric=co2&by=none").total.total == Decimal("12.442")
    assert explored("metric=energy&by=none").total.total == Decimal("23.400")


def test_every_grouping_is_the_energy_times_the_factor_of_its_grid(used: None) -> None:
    assert_by_hand()


def test_days_and_filters_share_a_line_out_to_the_gram(used: None) -> None:
    (whole,) = explored("metric=co2&by=none&step=day").charted
    assert {day: kg for day, kg in enumerate(whole.bars, 1) if kg} == {
        10: Decimal("9.312"), 11: Decimal("1.035"), 12: Decimal("2.095")
    }  # fmt: skip
    (part,) = explored("metric=co2&by=job&job=Job/eval&step=day").charted
    assert {day: kg for day, kg in enumerate(part.bars, 1) if kg} == {10: Decimal("1.035"), 11: Decimal("1.035")}
    assert explored("metric=co2&by=none", "cv").total.total == Decimal("2.095")
    assert explored("metric=co2&by=team&cluster=hq-2").total.total == Decimal("0.715")


def test_as_a_column_beside_the_cost_it_is_the_same(used: None) -> None:
    found = explored("by=job&column=co2")
    assert {one.names[0]: one.cell("co2") for one in found.groups} == {
        "Job/pretrain": Decimal("8.277"), "Job/eval": Decimal("2.070"), "Job/detect": Decimal("2.095"), "": Decimal(0)
    }  # fmt: skip
    assert found.total.cell("co2") == Decimal("12.442")


def test_what_has_no_factor_or_no_power_is_told_beside_the_figures(used: None, client: Client) -> None:
    """hq-3 has no factor: 2 GPU-hours x 1.3 kWh = 2.6 kWh. The price of an A800 has no sheet: 4 x 0.5 h = 2 GPU-hours."""
    ingest_allocations(
        hold(5, "2026-10-13T00:00:00Z", "2026-10-13T02:00:00Z", quantity=1, namespace="nlp", cluster="hq-3"),
        hold(6, "2026-10-13T00:00:00Z", "2026-10-13T00:30:00Z", quantity=4, namespace="cv", cluster="hq-2",
             accelerator="NVIDIA-A800"),
    )  # fmt: skip
    assert explored("metric=co2").total.total == Decimal("12.442")
    assert explored("metric=energy").total.total == Decimal("26.000")
    assert explored("metric=co2").unknown == {"without_co2": Decimal("2.600"), "without_energy": Decimal(2)}
    assert explored("column=co2", "nlp").unknown == {"without_co2": Decimal("2.600")}
    assert explored("metric=energy").unknown == explored("metric=co2&cluster=hq-2").unknown == {"without_energy": Decimal(2)}
    assert explored("metric=co2&by=job&step=hour&from=2026-10-13&to=2026-10-13").unknown == explored("metric=co2").unknown
    assert explored("metric=cost").unknown == explored("metric=co2&from=2026-10-10&to=2026-10-12").unknown == {}
    client.force_login(person("fay", "finance"))
    page = client.get("/explorer/?month=2026-10&metric=co2").content.decode()
    assert "2.6 kWh have no CO₂ factor and are in no figure of CO₂ here." in page
    assert "2.0 GPU-hours have a price without a cost sheet: their energy is not known and in no figure here." in page
    answer = client.get("/api/v1/explore?month=2026-10&metric=co2").json()
    assert answer["unknown"] == {"without_co2": "2.600", "without_energy": "2.000000"}


def test_it_is_what_the_invoices_state(used: None) -> None:
    bill("2026-10", AFTER)
    MonthCube.objects.all().delete()
    assert_by_hand()
    stated = {one.team.code: document_of(one)["co2_location_kg"] for one in Invoice.objects.select_related("team")}
    assert stated == BY_HAND["team"]
