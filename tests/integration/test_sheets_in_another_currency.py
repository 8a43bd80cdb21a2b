"""A cost sheet that says how it is listed: one price for the set-up file, the draft, the bench, the effect and recovery."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.rates.models import Commitment, CostSheet, GpuPrice, PriceVersion
from billing.rates.selectors import price_draft_named
from billing.rates.services import price_draft_approve, price_draft_submit
from billing.setup.file import SetUpFileError
from pricing.money import round_price
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.commands import THEN, since_2024
from tests.factories.prices import SHEET

pytestmark = pytest.mark.django_db

LISTED: dict[str, Any] = {
    **SHEET, "currency": "USD", "list_currency": "CNY", "exchange_rate": "7.1234", "rate_date": "2026-10-01",
    "reserved_ratio": "0.80", "preemptible_ratio": "0.40", "carbon_kg_per_kwh": "0.5306",
}  # fmt: skip
"""6.164383561644 + 1.326 + 14,000 / (16 x 730) + 700,000 / (1024 x 730) = 9.625437..., x 1.2 x 7.1234."""

IN_THE_LIST = round_price(
    (
        Fraction(270_000, 5 * 8760) + Fraction("1.326") + Fraction(14_000, 16 * 730) + Fraction(700_000, 1024 * 730)
    ) * Fraction("1.2") * Fraction("7.1234")
)  # fmt: skip


@pytest.fixture(scope="module")
def scenario(for_all_tests: Path) -> Path:
    apply(for_all_tests, **since_2024())
    ingest_allocations(allocation_record(**THEN))
    return for_all_tests


def test_a_declared_list_takes_the_converted_price_and_keeps_the_rate(scenario: Path) -> None:
    assert Decimal("82.2791") == IN_THE_LIST
    versions = since_2024()["price_versions"]
    versions.append(
        {"name": "2099-01", "valid_from": "2099-01-01T00:00:00+08:00",
         "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "usd"}]}
    )  # fmt: skip
    apply(scenario, **since_2024(cost_sheets=[{"name": "usd", "sheet": LISTED}], price_versions=versions))
    price = GpuPrice.objects.get(version__name="2099-01")
    assert price.price == IN_THE_LIST
    sheet = CostSheet.objects.get()
    assert (sheet.inputs["exchange_rate"], sheet.inputs["rate_date"]) == ("7.1234", "2026-10-01")
    listed = sheet.result["list_prices"]
    assert (listed["currency"], Decimal(listed["on_demand"])) == ("CNY", IN_THE_LIST)
    assert Decimal(listed["reserved"]) == round_price(IN_THE_LIST * Decimal("0.8"))
    assert sheet.result["footprint"] == {"kwh": "1.657500000000", "kg_operational": "0.879469500000"}


HELD = {"name": "nlp-2099", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1000",
        "valid_from": "2099-01-01", "cost_sheet": "usd"}  # fmt: skip


def test_a_commitment_takes_the_reserved_tier_of_a_sheet(scenario: Path) -> None:
    """80 % of 82.2791 is 65.82328, 65.8233 in the list."""
    apply(scenario, **since_2024(cost_sheets=[{"name": "usd", "sheet": LISTED}], commitments=[HELD]))
    assert Commitment.objects.get().price == Decimal("65.8233")


@pytest.mark.parametrize(
    ("sheet", "changed", "says"),
    [
        (LISTED, {"cost_sheet": "absent"}, "cost_sheet: 'absent' must be a stored cost sheet with reserved_ratio"),
        ({**SHEET, "currency": "USD", "reserved_ratio": "0.8"}, {}, "cost_sheet: 'usd' must be .* prices in CNY"),
        (SHEET, {}, "cost_sheet: 'usd' must be a stored cost sheet with reserved_ratio"),
        (LISTED, {"price_per_gpu_hour": "8"}, "price_per_gpu_hour: is given beside cost_sheet"),
    ],
)
def test_a_sheet_without_a_reserved_tier_prices_no_commitment(
    scenario: Path, sheet: dict[str, Any], changed: dict[str, str], says: str
) -> None:
    with pytest.raises(SetUpFileError, match=says):
        apply(scenario, **since_2024(cost_sheets=[{"name": "usd", "sheet": sheet}], commitments=[{**HELD, **changed}]))


def test_the_bench_shows_it_saves_it_and_prices_a_month_with_it(scenario: Path) -> None:
    client = signed_in(person("ana", "finance"))
    sent = {name: str(value) for name, value in LISTED.items()}
    shown: Any = client.get("/prices/workbench/", sent)
    assert shown.context["found"].cost.list_price == IN_THE_LIST
    page_text = shown.content.decode()
    for text in ("What is in the price list", "7.12340000", "2026-10-01", "Pre-emptible", "0.8795"):
        assert text in page_text, text
    effect: Any = client.get("/prices/workbench/effect/", {**sent, "month": "2024-10"})
    # 8 cards for 9433 s
    assert effect.context["effect"].total.after == (Fraction(8 * 9433, 3600) * Fraction(IN_THE_LIST)).__round__(2)
    saved = client.post(
        "/prices/workbench/draft/",
        {**sent, "draft_name": "2099-02", "valid_from": "2099-02-01", "reason": "bought abroad", "new_sheet": "usd"},
    )
    assert saved.status_code == 302
    draft = price_draft_named("2099-02")
    assert draft is not None
    now = timezone.now()
    price_draft_approve(draft=price_draft_submit(draft=draft, actor="ana", now=now), actor="ben", now=now)
    assert PriceVersion.objects.get(name="2099-02").gpu.get(accelerator="NVIDIA-H800").price == IN_THE_LIST


def test_no_difference_is_taken_between_two_currencies(scenario: Path) -> None:
    """6.164383561644 a GPU-hour in USD beside the same in CNY is no difference of 0.0000."""
    versions = [
        {"name": name, "valid_from": f"{name}-01", "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": sheet}]}
        for name, sheet in (("2099-01", "cny"), ("2099-02", "usd"))
    ]  # fmt: skip
    sheets = [{"name": "cny", "sheet": SHEET}, {"name": "usd", "sheet": LISTED}]
    apply(scenario, **since_2024(cost_sheets=sheets, price_versions=[*since_2024()["price_versions"], *versions]))
    client = signed_in(person("ana", "finance"))
    bench: Any = client.get("/prices/workbench/?sheet=usd&against=cny")
    keys = [f"v{PriceVersion.objects.get(name=name).pk}" for name in ("2099-01", "2099-02")]
    lists: Any = client.get("/prices/compare/", dict(zip(("old", "new"), keys, strict=True)))
    ((_one, of_lists, _inputs),) = lists.context["sheets"]
    for table, headings, nothing in (
        (bench.context["tables"]["compared"](), ["Component", "cny, CNY", "Now, USD", "Difference"], None),
        (of_lists, ["Component", "2099-01, CNY", "2099-02, USD", "Difference"], "—"),
    ):
        assert [str(column.heading) for column in table.columns] == headings
        assert [row[-1] for row in table.rows] == [nothing] * 4
    same: Any = client.get("/prices/workbench/?sheet=usd&against=usd")
    table = same.context["tables"]["compared"]()
    assert ([str(column.heading) for column in table.columns][1:3], {row[-1] for row in table.rows}) == (["usd", "Now"], {0})


def test_a_bad_term_of_the_list_is_named_beside_its_field(scenario: Path) -> None:
    sent = {name: str(value) for name, value in LISTED.items() if name != "rate_date"} | {"exchange_rate": "-7"}
    shown: Any = signed_in(person("ana", "finance")).get("/prices/workbench/", sent)
    assert shown.context["refusals"] == [
        "exchange_rate: '-7' must be a number above 0 up to 1e6 (billing currency per unit of the sheet's)",
        "rate_date: is missing, but list_currency is given",
    ]
