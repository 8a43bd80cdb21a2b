"""Slices on the workbench: a card whose price changes takes its slices along, and none of them undercuts it."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation import override

from billing.portal.slices import Card, memory_of, slice_prices, with_slices
from billing.rates.models import PriceDraft
from tests.factories import SET_UP, apply, person, signed_in
from tests.factories.prices import SHEET

pytestmark = pytest.mark.django_db
H800 = {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}
CARD = Card("NVIDIA-H800", Decimal("12.0000"), Decimal("10.0000"), 80)


def sliced(resource: str, price: str = "1.0000", accelerator: str = "") -> dict[str, str]:
    named = {"accelerator": accelerator} if accelerator else {}
    return {**named, "resource": resource, "price_per_slice_hour": price}


def reported(*rows: dict[str, str], card: Card = CARD) -> list[tuple[str, Decimal | None, str]]:
    return [(item.resource, item.price, item.share) for item in slice_prices([H800, *rows], card)]


def test_mig_slices_cost_the_larger_share_of_the_new_price() -> None:
    """B22 at 12 yuan: 1/7, 2/8, 3g.40gb 4/8 and 4/7 of the card."""
    profiles = ("1g.10gb", "1g.20gb", "3g.40gb", "4g.40gb")
    assert reported(*(sliced(f"nvidia.com/mig-{profile}") for profile in profiles)) == [
        ("nvidia.com/mig-1g.10gb", Decimal("1.7143"), "1/7"), ("nvidia.com/mig-1g.20gb", Decimal("3.0000"), "1/4"),
        ("nvidia.com/mig-3g.40gb", Decimal("6.0000"), "1/2"), ("nvidia.com/mig-4g.40gb", Decimal("6.8571"), "4/7"),
    ]  # fmt: skip


def test_seven_slices_never_cost_less_than_the_card() -> None:
    """10.0001 / 7 = 1.42858...: 1.4286 x 7 = 10.0002; 9.9999 / 7 = 1.42855... -> 1.4286, not 1.4285."""
    for price in (Decimal("10.0001"), Decimal("9.9999"), Decimal("0.0001")):
        card = Card("NVIDIA-H800", price, None, 80)
        ((_, found, _),) = reported(sliced("nvidia.com/mig-1g.10gb"), card=card)
        assert found is not None
        assert 7 * found >= price


def test_a_shared_slice_keeps_its_share_and_rounds_up() -> None:
    """3.3334 of 10 at a card of 12.0001: 4.00011333... -> 4.0002; three of them cost 12.0006, not less than the card."""
    card = Card("NVIDIA-H800", Decimal("12.0001"), Decimal("10.0000"), 80)
    rows = reported(sliced("nvidia.com/gpu.shared", "3.3334", "NVIDIA-H800"), card=card)
    assert rows == [("nvidia.com/gpu.shared", Decimal("4.0002"), "33.33 %")]


def test_what_is_unknown_stays_with_the_reason() -> None:
    other = {"accelerator": "NVIDIA-A100", "price_per_gpu_hour": "5.0000"}
    with override("en"):
        notes = [item.note for item in slice_prices([H800, other, sliced("nvidia.com/mig-1g.10gb")], CARD)]
    assert notes == ["stays: it names no accelerator, and the list has several"]
    small = Card("NVIDIA-A100-40GB", Decimal(5), None, 40)
    with override("en"):
        notes = [item.note for item in slice_prices([sliced("nvidia.com/mig-7g.80gb"), sliced("x.y/slice")], small)]
    assert notes == [
        "stays: it does not fit on a card of 40 GB", "stays: the card has no published price to compare with",
    ]  # fmt: skip
    rows = [H800, sliced("nvidia.com/mig-1g.10gb", accelerator="NVIDIA-A100")]
    assert slice_prices(rows, CARD) == []
    assert with_slices(rows, []) == rows


def test_the_memory_of_a_card_is_as_written_or_as_named() -> None:
    assert [memory_of("NVIDIA-A100-SXM4-40GB", text) for text in ("", "80", "x", "0")] == [40, 80, 40, 40]


def test_the_page_shows_the_slices_and_the_draft_takes_them_over(tmp_path: Path) -> None:
    """The sheet's price is 11.5505: a seventh is 1.65007..., and of a card of 20 GB a slice of 10 is half, 5.77525."""
    since = {**SET_UP["price_versions"][0], "valid_from": "2024-01-01"}
    apply(tmp_path, price_versions=[since])
    client = signed_in(person("ana", "finance"))
    sent: dict[str, Any] = {**SHEET, "accelerator": "NVIDIA-H800"}
    page = client.get("/prices/workbench/", sent).content.decode()
    assert "Slices that follow the card" in page
    assert re.search(r'<td class="n">1.7143</td>\s*<td class="n">\s*1.6501\s*</td>', page)
    saved = {**sent, "draft_name": "2099-01", "valid_from": "2099-01-01", "reason": "new cards", "new_sheet": "h800-2099"}
    assert client.post("/prices/workbench/draft/", saved).status_code == 302
    assert PriceDraft.objects.get().content["gpu"] == [
        {"accelerator": "NVIDIA-H800", "cost_sheet": "h800-2099"},
        {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "1.6501"},
    ]
    smaller = client.get("/prices/workbench/", {**sent, "card_memory_gb": "20"}).content.decode()
    assert re.search(r'<td class="n">1.7143</td>\s*<td class="n">\s*5.7753\s*</td>', smaller)


@pytest.mark.parametrize("written", ["141GB", "141 GB", "0", "12.5", "10000"])
def test_a_memory_that_is_none_is_refused_and_not_taken_for_the_usual_one(tmp_path: Path, written: str) -> None:
    """1g.18gb is an eighth of 141 GB and a quarter of 80 GB."""
    apply(tmp_path)
    client = signed_in(person("ana", "finance"))
    sent: dict[str, Any] = {**SHEET, "accelerator": "NVIDIA-H200", "card_memory_gb": written}
    says = [f"card_memory_gb: {written!r} must be a whole number from 1 to 9999 (GB of a whole card)"]
    shown: Any = client.get("/prices/workbench/", sent)
    assert (shown.context["refusals"], shown.context["found"]) == (says, None)
    assert shown.context["form"]["card_memory_gb"].value() == written
    effect: Any = client.get("/prices/workbench/effect/", {**sent, "month": "2026-10"})
    assert (effect.context["problems"], effect.context["effect"]) == (says, None)
    saved = {"draft_name": "2099-01", "valid_from": "2099-01-01", "reason": "new cards", "new_sheet": "h200"}
    answer: Any = client.post("/prices/workbench/draft/", {**sent, **saved})
    assert (answer.status_code, answer.context["refusals"], PriceDraft.objects.count()) == (400, says, 0)
