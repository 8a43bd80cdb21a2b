"""The price workbench in real Chromium: raise the H800 price to recover its cost at 65 % sold share, from next month on."""

import json
import re
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from billing.rates.models import CostSheet, PriceDraft, PriceVersion
from billing.rates.services import token_cost_sheet_put
from metering.intervals import month_of, next_month
from pricing.money import round_amount, round_price
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.browser.polling import wait_until_all_there, wait_until_true
from tests.factories.browser import PAINTED, open_menu
from tests.factories.load_reports import THREE
from tests.factories.price_desk import october, person, shot, sign_in
from tests.factories.prices import SHEET

__all__ = ["october"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_h800_price_is_raised_to_recover_its_cost_at_65_percent_sold(page: Page, october: Path) -> None:
    person("ana", "finance")
    person("ben", "approver")
    sign_in(page, "ana")
    page.get_by_role("link", name="Price workbench").click()
    page.get_by_label("Begin with").select_option("h800-hq")
    expect(page.get_by_role("heading", name="What moves the price most")).to_be_visible()
    shot(page, "workbench-1-open")

    page.get_by_label("sold_share").fill("65")
    expect(page.get_by_role("alert")).to_contain_text("sold_share: '65' must be a number above 0 up to 1")
    shot(page, "workbench-2-refused")
    page.get_by_label("sold_share").fill("0.65")
    # installed 8.299097... / 0.65 and energy as it was, 20 % on top
    expect(page.get_by_role("row", name="65.0 % this sheet")).to_be_visible()
    expect(page.get_by_role("row", name="Unsold hours")).to_have_count(2)
    # the complete model beside the simple one, which sells every hour
    expect(page.get_by_role("row", name="Hardware 6.1644 36.4 6.1644")).to_be_visible()
    expect(page.get_by_role("row", name="Unsold hours 4.4689 26.4 —")).to_be_visible()
    expect(page.get_by_role("row", name="Price 16.9132 100.0 11.5505")).to_be_visible()
    price = page.locator(".total").inner_text().removeprefix("CNY").strip()
    page.get_by_label("Month to price again").fill("2026-10")
    # nlp held 8 cards for 9433 s: 20.962222... GPU-hours at 10.0000 are 209.62, and 8.00 of tokens; cv has no H800
    dear = round_amount(Fraction(8 * 9433, 3600) * Fraction(price))
    row = page.get_by_role("row", name=f"NLP Research 217.62 {dear + 8}")
    expect(row).to_contain_text(f"+{dear - Decimal('209.62')}")
    expect(page.get_by_role("row", name="NVIDIA-H800 209.62")).to_contain_text(str(dear))
    effect = page.locator("#bench-effect")
    expect(effect.locator(".facts")).to_contain_text(f"+{dear - Decimal('209.62')}")
    expect(effect.get_by_role("row", name="1 team without change")).to_contain_text("0.00")
    expect(effect.get_by_role("row", name="Vision")).to_have_count(0)
    wait_until_all_there(page)  # a later answer would fold it again
    effect.locator("summary").filter(has_text="without change").click()
    expect(effect.get_by_role("row", name="Vision").first).to_be_visible()
    shot(page, "workbench-2-effect")
    page.get_by_label("Why do prices change?").fill("Recover the cost at 65 % sold")
    shot(page, "workbench-3-raised")
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_role("heading", name="Draft", exact=True)).to_be_visible()
    month = next_month(month_of(timezone.now(), "Asia/Shanghai"))
    sheet, draft = CostSheet.objects.get(name=f"NVIDIA-H800 {month}"), PriceDraft.objects.get()
    assert (sheet.inputs["sold_share"], draft.name, draft.makers) == ("0.65", month, ["ana"])
    price = sheet.result["price_per_gpu_hour"]
    expect(page.get_by_role("row", name=f"NVIDIA-H800 per GPU-Hours 10.0000 {price}")).to_be_visible()
    expect(page.get_by_role("row", name="NVIDIA-A800").first).to_contain_text("6.0000")

    page.get_by_text("Submit…").click()
    page.get_by_role("button", name="Submit for approval").click()
    expect(page.get_by_text("You made this list, so somebody else decides on it.")).to_be_visible()
    sign_in(page, "ben")
    page.goto(f"/prices/drafts/{draft.pk}/")
    page.get_by_text("Approve…").click()
    page.get_by_role("button", name="Approve and publish").click()
    expect(page.get_by_text("Scheduled", exact=True)).to_be_visible()
    shot(page, "workbench-4-published")
    version = PriceVersion.objects.get(name=month)
    assert version.published_by == "ben"
    assert str(version.gpu.get(accelerator="NVIDIA-H800").price) == price


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_makes_and_moves_the_price_is_drawn_beside_its_table(
    page: Page, october: Path, scheme: Literal["light", "dark"]
) -> None:
    """The waterfall ends at the price, the tornado stands around it; both follow what is typed, and none is refused."""
    person("ana", "finance")
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
    sign_in(page, "ana")
    page.emulate_media(color_scheme=scheme)
    page.goto("/prices/workbench/?sheet=h800-hq")
    parts, swings = (page.locator(f"section:has(#{name}) canvas") for name in ("parts-title", "swings-title"))

    def drawn() -> list[list[float]]:
        return parts.evaluate("canvas => Chart.getChart(canvas).data.datasets[0].data")

    price = page.locator("section:has(#parts-title) tfoot .n").first
    assert f"{drawn()[-1][1]:.4f}" == price.inner_text()
    here = swings.evaluate("canvas => Chart.getChart(canvas).data.datasets[1].data[0]")
    assert f"{here:.4f}" == price.inner_text()
    for canvas in (parts, swings):
        assert canvas.evaluate(PAINTED) > 3
        rows = canvas.evaluate("canvas => canvas.closest('section').querySelectorAll('tbody tr, tfoot tr').length")
        assert canvas.evaluate("canvas => Chart.getChart(canvas).data.labels.length") == rows
    before = price.inner_text()
    page.get_by_label("markup").first.fill("0.50")
    expect(price).not_to_have_text(before)
    wait_until_true(page, "!!Chart.getChart(document.querySelector('section:has(#parts-title) canvas'))")
    assert f"{drawn()[-1][1]:.4f}" == price.inner_text()
    assert refused == []


def test_three_bad_inputs_get_three_messages(page: Page, october: Path) -> None:
    person("ana", "finance")
    sign_in(page, "ana")
    page.goto("/prices/workbench/?sheet=h800-hq")
    page.get_by_role("heading", name="Purchase").click()
    page.get_by_role("heading", name="Power").click()
    page.get_by_label("gpu_price").fill("")
    page.get_by_label("installed_gpus").fill("32")
    page.get_by_label("spare_gpus").fill("40")
    page.get_by_label("gpu_power_kw").fill("700")
    shown = page.get_by_role("alert").locator("p")
    expect(shown).to_have_count(3)
    expect(shown).to_contain_text(
        [
            "spare_gpus: 40 must be below installed_gpus 32",
            "gpu_price: is missing, must be a number from 0 to 1e9 (currency per GPU)",
            "gpu_power_kw: '700' must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7",
        ]
    )
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_role("alert").locator("p")).to_have_count(3)
    assert not PriceDraft.objects.exists()


def test_a_sheet_in_a_file_is_opened_and_a_bad_one_is_refused(page: Page, october: Path, tmp_path: Path) -> None:
    person("ana", "finance")
    sign_in(page, "ana")
    page.goto("/prices/workbench/")
    tariff = {"peak": {"price_per_kwh": "1.04", "hours": "8"}, "valley": {"price_per_kwh": "0.26", "hours": "8"}}
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(yaml.safe_dump({**SHEET, "tariff": tariff}))
    bad.write_text(yaml.safe_dump({**SHEET, "gpu_power": "700", "pue": "0.9"}))
    page.get_by_label("or with a YAML file").set_input_files(bad)
    page.get_by_role("button", name="Upload").click()
    shown = page.get_by_role("alert").locator("p")
    expect(shown).to_contain_text(
        ["pue: '0.9' must be a number from 1 to 5", "gpu_power: is no field of a cost sheet, did you mean gpu_power_kw?"]
    )
    expect(page.get_by_label("gpu_price")).to_have_value(str(SHEET["gpu_price"]))
    page.get_by_label("or with a YAML file").set_input_files(good)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", name="What the price is made of")).to_be_visible()
    assert json.loads(page.get_by_label("tariff").input_value()) == tariff
    expect(page.locator(".total")).to_contain_text(
        str(cost_of_gpu_hour(parse_cost_sheet({**SHEET, "tariff": tariff})).price)
    )
    assert not PriceDraft.objects.exists()


def test_a_stored_load_test_is_priced_by_three_methods(page: Page, october: Path) -> None:
    """Runs of 1000 s on one GPU that take 50 GPU-seconds a million of input and 500 of output, by construction."""
    shapes = [(2, 2000, 1800), (3, 8000, 1200), (4, 4000, 1600), (5, 10_000, 1000), (6, 12_000, 800)]
    runs = [
        {"offered_rps": rate, "completed_rps": rate, "input_tps": fresh, "output_tps": out, "ttft_p99_ms": 100 * rate,
         "tpot_p99_ms": 40, "error_rate": 0, "duration_s": 1000}
        for rate, fresh, out in shapes
    ]  # fmt: skip
    report = {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "llama-3-8b", "engine": "vllm 0.11", "precision": "fp8"}
    terms = {"currency": "CNY", "gpu_hour_cost": "10", "ttft_p99_ms": 500, "tpot_p99_ms": 80, "prefill_share": "0.5"}
    token_cost_sheet_put(name="llama-shapes", inputs={**terms, "report": {**report, "runs": runs}}, actor="ana")
    person("ana", "finance")
    sign_in(page, "ana")
    page.get_by_role("link", name="Price workbench").click()
    page.get_by_role("link", name="The price of tokens, from a load test").click()
    page.get_by_role("combobox", name="Load test").select_option("llama-shapes")
    # at 5 requests/s: R 10 / 3.6e-3 / (10000 + 4 x 1000), T half of it by phase, L 50 and 500 GPU-seconds
    expect(page.get_by_role("row", name="Input 2.0000 0.1984 0.1389")).to_contain_text("0.1389")
    expect(page.get_by_role("row", name="Output 8.0000 0.7937 1.3889")).to_contain_text("+75.00%")
    expect(page.get_by_role("row", name="Cost recovered per GPU-hour")).to_contain_text("10.0000")
    expect(page.get_by_role("row", name="5 10000 1000 500 40 selected")).to_be_visible()
    expect(page.get_by_role("row", name="6 12000 800 600 40")).to_contain_text("TTFT p99 600 > 500 ms")
    expect(page.get_by_text("More than 15 % from the chosen method")).to_have_count(2)
    expect(page.get_by_text("condition_number")).to_be_visible()
    shot(page, "tokens-1280")
    page.get_by_label("prefill_share").fill("50")
    page.get_by_role("button", name="Price it").click()
    expect(page.get_by_role("alert")).to_contain_text("prefill_share: '50' must be a number from 0 to 1 (ratio)")
    page.get_by_label("prefill_share").fill("")
    page.get_by_label("method").select_option("least-squares")
    page.get_by_role("button", name="Price it").click()
    expect(page.get_by_text("needs prefill_share")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    wait_until_true(page, "document.documentElement.scrollWidth <= 390")
    shot(page, "tokens-390")


def test_a_run_is_planned_at_published_prices(page: Page, october: Path) -> None:
    person("vic", "viewer")
    sign_in(page, "vic")
    page.get_by_role("link", name="Training planner").click()
    page.get_by_label(re.compile(r"\bmfu$")).fill("0.43")
    page.get_by_label("market_carbon_kg_per_kwh").fill("0")
    page.get_by_role("button", name="Calculate").click()
    # vector E09: 10 B parameters, 10 T tokens, 43 % of 989.4 TFLOP/s, goodput 0.9: 435 277.16 GPU-hours, 70.85 days
    expect(page.get_by_role("row", name="GPU-hours")).to_contain_text("435,277.2")
    expect(page.get_by_role("row", name="Days on all GPUs")).to_contain_text("70.8")
    expect(page.get_by_role("row", name="Cost of the main run")).to_contain_text("4,352,771.59")
    expect(page.get_by_role("row", name="CO2 by contract").get_by_role("cell")).to_have_text(["0", "0", "0"])
    expect(page.get_by_text("attention are left out")).to_be_visible()
    shot(page, "planner")
    address = page.url
    page.get_by_label(re.compile(r"\bmfu$")).fill("1.2")
    page.get_by_role("button", name="Calculate").click()
    expect(page.get_by_role("alert")).to_contain_text("mfu: '1.2' must be a number above 0 to below 1")
    page.goto(address)
    expect(page.get_by_role("row", name="GPU-hours")).to_contain_text("435,277.2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_neither_page_is_wider_than_the_screen(
    browser: Browser, live_server: Any, october: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    person("ana", "finance")
    context = browser.new_context(
        base_url=live_server.url, viewport={"width": width, "height": 844}, color_scheme=scheme
    )
    page = context.new_page()
    sign_in(page, "ana")
    for name, path in {"workbench": "/prices/workbench/?sheet=h800-hq", "planner": "/planner/"}.items():
        page.goto(path)
        page.wait_for_load_state("networkidle")
        shot(page, f"w{width}-{scheme}-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


def test_a_report_in_a_file_is_priced_by_prompt_length_and_saved(page: Page, october: Path, tmp_path: Path) -> None:
    """As in tests.unit.test_token_contexts: 1,000 and 2,000 tokens share 0.4386, 8,000 cost 0.6667 a million of input."""
    report = tmp_path / "report.json"
    report.write_text(json.dumps(THREE))
    person("ana", "finance")
    sign_in(page, "ana")
    page.goto("/prices/workbench/tokens/")
    page.get_by_text("Reports in files").click()
    page.get_by_label("Reports of vLLM").set_input_files(report)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("gpu_hour_cost: is missing, must be a number")
    for name, value in (("gpu_hour_cost", "10"), ("markup", "0.2"), ("ttft_p99_ms", "1000"), ("tpot_p99_ms", "50")):
        page.get_by_label(re.compile(rf"\b{name}$")).fill(value)
    page.get_by_label("context_buckets").select_option("true")
    page.get_by_role("button", name="Price it").click()
    expect(page.get_by_role("row", name="0-2000 measured at 1000, 2000 0.4386 0.0439 0.4386 1.7544")).to_be_visible()
    expect(page.get_by_role("row", name="2001+ measured at 8000 0.6667 0.0667 0.6667 2.6667")).to_be_visible()
    expect(page.get_by_text("2000 → 8000 tokens: Input +60.00%, a bucket of its own")).to_be_visible()
    shot(page, "token-report-1-priced")
    page.get_by_label("Why do prices change?").fill("Long prompts cost more")
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_role("heading", name="Draft", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="long prompts of 2001+ tokens")).to_contain_text("2.6667")
    shot(page, "token-report-2-draft")
    assert PriceDraft.objects.get().content["tokens"][-1]["model"] == "long"


def test_the_workbenches_fit_on_a_phone(page: Page, october: Path) -> None:
    """At 390 pixels nothing is wider than the page, and no two things of the header stand on each other."""
    person("ana", "finance")
    sign_in(page, "ana")
    page.set_viewport_size({"width": 390, "height": 844})
    for number, address in enumerate(("/prices/workbench/?sheet=h800-hq", "/prices/workbench/tokens/", "/planner/")):
        page.goto(address)
        open_menu(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        found = page.locator("header.side .brand > *, header.side .account a, header.side .account button").all()
        boxes = [box for item in found if item.is_visible() and (box := item.bounding_box())]
        for one, other in combinations(boxes, 2):
            beside = one["x"] + one["width"] <= other["x"] + 1 or other["x"] + other["width"] <= one["x"] + 1
            below = one["y"] + one["height"] <= other["y"] + 1 or other["y"] + other["height"] <= one["y"] + 1
            assert beside or below, (address, one, other)
        shot(page, f"phone-{number}")


CHINESE = {
    "Price workbench": "价格工作台", "Save as a draft": "保存为草稿", "Why do prices change?": "价格为何变更？",
    "Draft": "草稿", "What is in the price list": "列入价格表的内容", "Price list": "价格表",
}  # fmt: skip


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_price_is_raised_on_a_phone_and_a_desk_in_both_languages(
    browser: Browser, live_server: Any, october: Path, width: int, language: str
) -> None:
    """65 % sold, bought in dollars, from next month: refusals in the reader's language, the list in its own currency."""
    person("ana", "finance")
    context = browser.new_context(
        base_url=live_server.url, viewport={"width": width, "height": 844}, locale="en-GB", has_touch=width < 1000
    )
    page = context.new_page()
    sign_in(page, "ana")
    if language != "en":
        page.goto("/")
        open_menu(page)
        page.get_by_role("button", name="简体中文").click()
        expect(page.locator("html")).to_have_attribute("lang", language)

    def said(text: str) -> str:
        return CHINESE[text] if language != "en" else text

    page.goto("/prices/workbench/?sheet=h800-hq")
    expect(page.get_by_role("heading", name=said("Price workbench"))).to_be_visible()
    page.get_by_label("sold_share").fill("65")
    refused = {
        "en": "sold_share: '65' must be a number above 0 up to 1 (ratio of the available hours): 70 % is 0.70",
        "zh-hans": "sold_share：'65' 应为大于 0、不大于 1 的数（",
    }[language]
    expect(page.get_by_role("alert")).to_contain_text(refused)
    shot(page, f"raise-{language}-{width}-1-refused")
    page.get_by_label("sold_share").fill("0.65")
    page.locator("summary").get_by_role("heading", name=said("Price list")).click()
    for name, value in (("list_currency", "USD"), ("exchange_rate", "0.14"), ("rate_date", "2026-10-01")):
        page.get_by_label(name).fill(value)
    page.get_by_label("reserved_ratio").fill("0.8")
    # 16.9132 with markup, exactly 16.91315..., x 0.14
    listed = page.locator("section:has(#listed-title)")
    expect(listed.get_by_role("heading", name=said("What is in the price list"))).to_be_visible()
    price = cost_of_gpu_hour(parse_cost_sheet({**SHEET, "sold_share": "0.65"}))
    expect(listed).to_contain_text(str(round_price(price.cost * (1 + price.markup) * Fraction("0.14"))))
    shot(page, f"raise-{language}-{width}-2-listed")
    refused = {"en": "list_currency: 'USD' must be CNY", "zh-hans": "list_currency：'USD' 应为 CNY"}[language]
    expect(page.locator("#bench-effect")).to_contain_text(refused)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("list_currency", "exchange_rate", "rate_date", "reserved_ratio"):
        page.get_by_label(name).fill("")
    expect(listed).to_have_count(0)
    page.get_by_label(said("Why do prices change?")).fill("65 %")
    page.get_by_role("button", name=said("Save as a draft")).click()
    expect(page.get_by_role("heading", name=said("Draft"), exact=True)).to_be_visible()
    shot(page, f"raise-{language}-{width}-3-draft")
    assert PriceDraft.objects.get().content["gpu"][0]["cost_sheet"].startswith("NVIDIA-H800")
    wait_until_all_there(page)  # else the database is emptied under a request
    context.close()
