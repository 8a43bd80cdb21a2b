"""Prices per bucket of prompt lengths: each request is billed by its own length, and every number says the same."""

import json
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from billing.budgets.spending import month_lines, spent_in
from billing.corrections.effect import effect_of
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from billing.portal import drilldown
from billing.rates.models import PriceVersion
from billing.rates.price_diff import price_changes
from billing.rates.price_file import export_yaml
from billing.rates.price_list import parse_price_list
from billing.rates.selectors import hypothetical_version, plain_version, stored_sources
from billing.rating.price_effect import price_effect
from metering.intervals import Interval, billing_month
from tests.factories import SET_UP, apply, ingest_tokens, money, signed_in, token_record
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, bill, credit, part, people, proofs_hold, shown
from tests.factories.pages import file_rows, statements_of

pytestmark = pytest.mark.django_db
ZONE = "Asia/Shanghai"
OCTOBER = billing_month("2026-10", ZONE)
MODEL = "llama-3-8b"
BUCKETS = [
    {"model": MODEL, "up_to_tokens": 1_000_000, "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"},
    {"model": MODEL, "up_to_tokens": 4_000_000, "input": "3.0000", "cache_read": "0.3000", "output": "12.0000"},
    {"model": MODEL, "input": "5.0000", "cache_read": "0.5000", "output": "20.0000"},
    {"model": "flat", "input": "1.0000", "output": "1.0000"},
]
LISTED = SET_UP["price_versions"][0]
BUCKETED = {**LISTED, "tokens": BUCKETS}


def request(number: int, total: int, cached: int = 0, output: int = 0, **changed: Any) -> dict[str, Any]:
    counts = {"input_tokens": total, "cache_read_input_tokens": cached, "output_tokens": output}
    return token_record(number, **counts, reasoning_output_tokens=0, **changed)


def requests_of_october() -> None:
    """One request at each side of each bound; a fifth of a model without buckets."""
    ingest_tokens(
        request(1, 1_000_000, 200_000, 100_000),
        request(2, 1_000_001, 1, 100_000, time="2026-10-15T12:59:59+08:00"),
        request(3, 4_000_000, 0, 50_000, time="2026-10-16T09:30:00+08:00"),
        request(4, 4_000_001, 4_000_000, 10_000),
        request(5, 3_000_000, model="flat"),
    )


HAND = [
    ("llama-3-8b", "input", "0-1000000", "0.800000", "2.0000", "1.60"),
    ("llama-3-8b", "cache_read", "0-1000000", "0.200000", "0.2000", "0.04"),
    ("llama-3-8b", "output", "0-1000000", "0.100000", "8.0000", "0.80"),
    ("llama-3-8b", "input", "1000001-4000000", "5.000000", "3.0000", "15.00"),
    ("llama-3-8b", "cache_read", "1000001-4000000", "0.000001", "0.3000", "0.00"),
    ("llama-3-8b", "output", "1000001-4000000", "0.150000", "12.0000", "1.80"),
    ("llama-3-8b", "input", "4000001+", "0.000001", "5.0000", "0.00"),
    ("llama-3-8b", "cache_read", "4000001+", "4.000000", "0.5000", "2.00"),
    ("llama-3-8b", "output", "4000001+", "0.010000", "20.0000", "0.20"),
    ("flat", "input", None, "3.000000", "1.0000", "3.00"),
]
TOTAL = money("24.44")
"""1.60 + 0.04 + 0.80 + 15.00 + 0.00 + 1.80 + 0.00 + 2.00 + 0.20, and 3.00 of the other model; by hand."""


def lines(invoice: Invoice) -> list[tuple[Any, ...]]:
    names = ("sku", "token_class", "context", "quantity", "unit_price", "amount")
    return [tuple(line.get(name) for name in names) for line in document_of(invoice)["lines"]]


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    people()
    apply(for_all_tests, price_versions=[BUCKETED])
    requests_of_october()


def test_lines_stand_in_the_order_of_the_buckets_not_of_their_digits(tmp_path: Path) -> None:
    ends = (8_192, 131_072)
    apply(tmp_path, price_versions=[{**LISTED, "tokens": [
        *({"model": MODEL, "up_to_tokens": end, "output": "8.0000"} for end in ends), {"model": MODEL, "output": "9.0000"},
    ]}])  # fmt: skip
    ingest_tokens(*(request(total, total, total, 1_000, cache_creation_input_tokens=0) for total in (1, 9_000, 200_000)))
    first = [line.key.token_class for line in previewed().lines if line.key.token_class.startswith("output")]
    assert first == ["output@0-8192", "output@8193-131072", "output@131073+"]


def test_an_hour_that_a_local_midnight_cuts_is_shared_by_two_days(tmp_path: Path) -> None:
    """The 15th begins at 18:30 UTC in India: of two requests of that hour at 8.00 each day has one."""
    price = {**LISTED, "valid_from": "2026-01-01T00:00:00Z"}
    apply(tmp_path, billing={**SET_UP["billing"], "zone": "Asia/Kolkata"}, price_versions=[price])
    ingest_tokens(*(
        request(minute, 0, 0, 1_000_000, time=f"2026-10-14T18:{minute}:00Z") for minute in (10, 40)
    ))  # fmt: skip
    found = statements_of()
    (line,) = found.charged[0].lines
    scope = drilldown.scope_of(line, found.period)
    shown = []
    for day in drilldown.days_of_tokens(line, scope).parts:
        (hour,) = drilldown.hours_of_tokens(line, scope, day.facts["day"], day).parts
        asked = drilldown.requests(line, scope, day.facts["day"], hour.facts["hour"], hour)
        shown.append((str(day.facts["day"]), f"{hour.facts['hour']:%H:%M}", [
            (f"{part.facts['time']:%H:%M}", part.usage, part.amount) for part in asked.parts
        ]))  # fmt: skip
    assert shown == [
        ("2026-10-14", "18:00", [("18:10", 1_000_000, money("8.00"))]),
        ("2026-10-15", "18:30", [("18:40", 1_000_000, money("8.00"))]),
    ]


def test_a_price_version_that_moves_the_bounds_moves_them_at_its_instant(tmp_path: Path) -> None:
    """The first list: one price; from 12:30 on: 9 beyond 500 tokens. Requests within one hour."""
    plain = [{"model": MODEL, "input": "2.0000", "cache_read": "2.0000", "output": "2.0000"}]
    moved = [
        {"model": MODEL, "up_to_tokens": 500, "input": "4.0000", "output": "4.0000"},
        {"model": MODEL, "input": "9.0000", "output": "9.0000"},
    ]
    apply(tmp_path, price_versions=[
        {**LISTED, "tokens": plain},
        {"name": "2026-10b", "valid_from": "2026-10-15T12:30:00+08:00", "tokens": moved, "gpu": LISTED["gpu"]},
    ])  # fmt: skip
    at = {"early": "2026-10-15T12:29:59.999999+08:00", "late": "2026-10-15T12:30:00+08:00"}
    ingest_tokens(
        request(1, 501, 0, 1_000_000, time=at["early"]), request(2, 500, 0, 1_000_000, time=at["late"]),
        request(3, 501, 0, 1_000_000, time=at["late"]),
    )  # fmt: skip
    bill()
    found = [line[1:] for line in lines(Invoice.objects.get()) if line[1] == "output"]
    assert sorted(found, key=str) == [
        ("output", "0-500", "1.000000", "4.0000", "4.00"), ("output", "501+", "1.000000", "9.0000", "9.00"),
        ("output", None, "1.000000", "2.0000", "2.00"),
    ]  # fmt: skip
    assert proofs_hold("2026-10")


def test_what_buckets_would_have_cost_is_shown_class_by_class(tmp_path: Path) -> None:
    """One price of 2, 0.2 and 8 for all: 5,800,001 input cost 11.60, 4,200,001 cached 0.84, 260,000 output 2.08."""
    flat = [{"model": MODEL, "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"}, BUCKETS[3]]
    apply(tmp_path, price_versions=[{**LISTED, "tokens": flat}])
    requests_of_october()
    prices = parse_price_list({"tokens": BUCKETS}, currency="CNY", sources=stored_sources())
    effect = price_effect(window=OCTOBER, zone=ZONE, close_seq=None, prices=hypothetical_version("draft", prices))
    rows = [(row.key.token_class, row.before, row.after) for row in effect.rows if row.key.sku == MODEL]
    assert rows == [
        ("cache_read", money("0.84"), money("2.04")), ("input", money("11.60"), money("16.60")),
        ("output", money("2.08"), money("2.80")),
    ]  # fmt: skip
    assert not effect.unpriced_after


def test_a_bucket_without_a_price_of_a_class_can_not_be_billed_at_another(tmp_path: Path) -> None:
    """The price of the class is unknown in every bucket: its tokens block the close, they are not free."""
    without = [{name: value for name, value in row.items() if name != "cache_read"} for row in BUCKETS]
    apply(tmp_path, price_versions=[{**LISTED, "tokens": without}])
    requests_of_october()
    found = statements_of()
    assert found.assessment is not None
    assert [(item.sku, item.quantity) for item in found.assessment.unpriced] == [
        (f"{MODEL} cache_read@0-1000000", 200_000), (f"{MODEL} cache_read@1000001-4000000", 1),
        (f"{MODEL} cache_read@4000001+", 4_000_000),
    ]  # fmt: skip


def test_prices_of_a_load_test_by_prompt_length_are_published_as_they_were_derived(tmp_path: Path) -> None:
    """The load tests of 2,000 and 8,000 tokens: 10 / 3600 x 10^6 / 8000 and / 5000, the output four times as much."""
    point = {"ttft_p99_ms": "900", "tpot_p99_ms": "40", "error_rate": "0", "duration_s": "600"}
    runs = [
        {"offered_rps": "3", "completed_rps": "3", "input_tps": "6000", "output_tps": "500", **point},
        {"offered_rps": "0.5", "completed_rps": "0.5", "input_tps": "4000", "output_tps": "250", **point},
    ]
    report = {"accelerator": "NVIDIA-H800", "gpus": 1, "model": MODEL, "engine": "vllm", "precision": "fp8", "runs": runs}
    terms = {"currency": "CNY", "gpu_hour_cost": "10", "ttft_p99_ms": "1000", "tpot_p99_ms": "50", "report": report}
    sheet = {"name": "measured", "sheet": {**terms, "context_buckets": True}}
    apply(
        tmp_path, token_cost_sheets=[sheet],
        price_versions=[{**LISTED, "tokens": [{"model": MODEL, "cost_sheet": "measured"}]}],
    )  # fmt: skip
    ingest_tokens(request(1, 2_000, 0, 1_000_000), request(2, 2_001, 0, 1_000_000))
    bill()
    assert [line[1:] for line in lines(Invoice.objects.get()) if line[1] == "output"] == [
        ("output", "0-2000", "1.000000", "1.3889", "1.39"), ("output", "2001+", "1.000000", "2.2222", "2.22"),
    ]  # fmt: skip
    exported = yaml.safe_load(export_yaml(PriceVersion.objects.get(), ZONE))
    assert exported["price_versions"][0]["tokens"] == [{"model": MODEL, "cost_sheet": "measured"}]
    assert exported["token_cost_sheets"][0]["sheet"]["context_buckets"] == "true"


def test_every_request_is_billed_by_the_bucket_of_its_own_prompt(october: None) -> None:
    bill()
    invoice = Invoice.objects.get()
    assert sorted(lines(invoice), key=str) == sorted(HAND, key=str)
    assert invoice.total == TOTAL
    assert proofs_hold("2026-10")


def previewed() -> Any:
    found = statements_of()
    (statement,) = found.charged
    return statement


def test_preview_budget_and_invoice_are_one_number(october: None) -> None:
    before = month_lines("2026-10", ZONE)
    assert before.preview
    assert sum(item.amount for item in before.lines) == Fraction(TOTAL) == Fraction(previewed().total)
    bill()
    after = month_lines("2026-10", ZONE)
    assert not after.preview
    assert sorted(item.amount for item in after.lines) == sorted(item.amount for item in before.lines)


def test_days_cost_the_exact_sum_of_their_requests(october: None) -> None:
    """Not rounded: 2.44 of the first, 4.2000003 and 12.6 of the second, 2.200005 of the third, 3 of the flat one."""
    days = [Interval(OCTOBER.start + timedelta(days=day), OCTOBER.start + timedelta(days=day + 1)) for day in range(31)]
    by_part: dict[int, Fraction] = {}
    for item in spent_in(days):
        by_part[item.part] = by_part.get(item.part, Fraction(0)) + item.amount
    assert by_part == {14: Fraction("11.8400053"), 15: Fraction("12.6")}


def test_late_requests_and_notes_keep_their_bucket(october: None) -> None:
    """Late: 4,000,001 tokens cost 20.00005 at 5.0000. The note: half of the line of 15.00 taken off."""
    bill()
    position = next(line["position"] for line in document_of(Invoice.objects.get())["lines"] if line["amount"] == "15.00")
    (note,) = credit(part("7.50", position))
    (credited,) = document_of(note)["lines"]
    assert (credited["token_class"], credited["context"], credited["amount"]) == ("input", "1000001-4000000", "-7.50")
    ingest_tokens(request(9, 4_000_001, time="2026-10-30T12:00:00+08:00"))
    bill("2026-11", NOVEMBER_OVER)
    invoice = Invoice.objects.get(period__month="2026-11")
    assert lines(invoice) == [(MODEL, "input", "4000001+", "4.000001", "5.0000", "20.00")]
    assert document_of(invoice)["lines"][0]["charge_class"] == "Correction"
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_the_price_of_one_bucket_is_corrected_after_the_close(october: None) -> None:
    """5,000,000 tokens at 2.5 instead of 3: 12.50 instead of 15.00; the other buckets stay."""
    bill()
    priced = "input@1000001-4000000"
    change = retroactive_propose(
        kind="price", name="fix", fact={"tokens": [{"model": MODEL, "token_class": priced, "price": "2.5"}]},
        valid_from=OCTOBER.start, valid_until=None, reason="typed wrongly", evidence="INC-1", actor="sam", now=IN_NOVEMBER,
    )  # fmt: skip
    assert [(item.team, item.difference) for item in effect_of(change).by_team_and_month()] == [("nlp", money("-2.50"))]
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    assert [shown(note) for note in Note.objects.order_by("kind")] == [
        [("reversal", "tokens", "-5.000000", "3.0000", "-15.00")], [("rebill", "tokens", "5.000000", "2.5000", "12.50")],
    ]  # fmt: skip
    assert proofs_hold("2026-10")


def test_focus_names_the_bucket_and_adds_up(october: None, tmp_path: Path) -> None:
    bill()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = [row for row in file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv") if row["x_ModelId"] == MODEL]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == money("21.44")
    dear = [row for row in rows if row["SkuPriceId"] == f"{MODEL}/output@4000001+"]
    assert [(row["BilledCost"], row["ConsumedQuantity"], row["SkuMeter"]) for row in dear] == [
        ("0.20", "10000", "Output Tokens")
    ]
    assert json.loads(dear[0]["SkuPriceDetails"])["x_PromptTokens"] == "4000001+"
    assert "in requests of 4000001+ input tokens" in dear[0]["ChargeDescription"]
    hours = {row["ChargePeriodStart"] for row in rows if row["SkuPriceId"].endswith("/input@1000001-4000000")}
    assert hours == {"2026-10-15T04:00:00Z", "2026-10-16T01:00:00Z"}


def test_documents_print_the_bucket(october: None, tmp_path: Path) -> None:
    bill()
    call_command("export_invoices", "2026-10", "--out", str(tmp_path))
    (path,) = tmp_path.glob("*.csv")
    assert sorted({row["context"] for row in file_rows(path)}) == ["", "0-1000000", "1000001-4000000", "4000001+"]


@pytest.mark.parametrize("closed", [False, True])
def test_every_level_of_a_line_adds_up_to_it(october: None, closed: bool) -> None:
    if closed:
        bill()
    found = statements_of()
    (statement,) = found.charged
    assert len(statement.lines) == len(HAND)
    for line in statement.lines:
        scope = drilldown.scope_of(line, found.period)
        days = drilldown.days_of_tokens(line, scope)
        assert sum(day.quantity for day in days.parts) == days.quantity == line.quantity
        assert sum(day.amount for day in days.parts) == line.amount
        for day in days.parts:
            for hour in drilldown.hours_of_tokens(line, scope, day.facts["day"], day).parts:
                asked = drilldown.requests(line, scope, day.facts["day"], hour.facts["hour"], hour)
                assert sum(part.usage for part in asked.parts) == hour.usage
                assert sum(part.amount for part in asked.parts) == hour.amount


FORM = {
    "name": "2099-01", "valid_from": "2099-01-01T00:00", "reason": "long prompts cost more",
    "gpu_accelerator": ["NVIDIA-H800"],
    "gpu_resource": [""], "gpu_source": ["price_per_gpu_hour"], "gpu_value": ["10"], "tokens_model": [MODEL, MODEL],
    "tokens_up_to_tokens": ["32768", ""], "tokens_input": ["2", "3.5"], "tokens_cache_read": ["", ""],
    "tokens_cache_creation": ["", ""], "tokens_output": ["8", "14"], "tokens_cost_sheet": ["", ""],
}  # fmt: skip


def test_a_list_with_buckets_goes_through_form_approval_pages_and_files(october: None) -> None:
    maker, approver = signed_in("sam"), signed_in("fin")
    refused = maker.post("/prices/drafts/new/", {**FORM, "tokens_up_to_tokens": ["32768", "99"]}).content.decode()
    assert "99 must be left out: the last bucket of &#x27;llama-3-8b&#x27; takes all longer prompts" in refused
    address = maker.post("/prices/drafts/new/", FORM)["Location"]
    assert 'name="tokens_up_to_tokens" value="32768"' in maker.get(f"{address}edit/").content.decode()
    assert maker.post(f"{address}submit/").status_code == 302
    assert approver.post(f"{address}approve/", {"revision": "1", "reason": "agreed"}).status_code == 302
    version = PriceVersion.objects.get(name="2099-01")
    assert {row.token_class: row.price for row in version.tokens.all()} == {
        "input@0-32768": 2, "output@0-32768": 8, "input@32769+": Decimal("3.5"), "output@32769+": 14,
    }  # fmt: skip
    page = maker.get(f"/prices/versions/{version.pk}/").content.decode()
    assert "prompts of 0-32768 tokens" in page
    assert "prompts of 32769+ tokens" in page
    tokens = yaml.safe_load(export_yaml(version, ZONE))["price_versions"][0]["tokens"]
    assert tokens == [
        {"model": MODEL, "up_to_tokens": "32768", "input": "2.0000", "output": "8.0000"},
        {"model": MODEL, "input": "3.5000", "output": "14.0000"},
    ]
    again = parse_price_list({"tokens": tokens}, currency="CNY", sources=stored_sources())
    assert again.tokens == plain_version(version).tokens
    changes = price_changes(plain_version(PriceVersion.objects.get(name="2026-10")), plain_version(version))
    assert [(row.key.token_class, row.change) for row in changes if row.key.token_class.startswith("output")] == [
        ("output", "removed"), ("output@0-1000000", "removed"), ("output@0-32768", "added"), ("output@32769+", "added"),
        ("output@1000001-4000000", "removed"), ("output@4000001+", "removed"),
    ]  # fmt: skip


def test_pages_of_invoice_and_line_name_the_bucket(october: None) -> None:
    bill()
    finance = signed_in("sam")
    invoice = Invoice.objects.get()
    assert "Output, prompts of 4000001+ tokens" in finance.get(f"/invoices/{invoice.pk}/").content.decode()
    line = next(line for line in previewed().lines if line.key.token_class == "output@4000001+")
    page = finance.get(f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10"}).content.decode()
    assert "Output, prompts of 4000001+ tokens" in page
