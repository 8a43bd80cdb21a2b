"""Journal and FOCUS of a month: what leaves the installation adds up to the invoices, and never leaves by halves."""

import json
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from billing.closing.services.closing import period_close
from billing.exports.focus.conformance import Conformance
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_approve, invoices_issue
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.commands import Manage
from tests.factories.corrections import NOVEMBER_OVER, bill
from tests.factories.months import OCTOBER_OVER
from tests.factories.pages import file_rows
from tests.factories.usage import POLICY, hold, sample
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db

FOUR_EYES = {**SET_UP["billing"], "review": "four-eyes"}
SETS = ("cost-and-usage", "invoice-detail", "billing-period")


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Manage:
    return Manage(capsys)


def parquet(directory: Path, name: str = "cost-and-usage", month: str = "2026-10") -> list[dict[str, Any]]:
    return pq.read_table(directory / f"focus-{name}-{month}.parquet").to_pylist()


def text(directory: Path, name: str = "cost-and-usage", month: str = "2026-10") -> list[dict[str, str]]:
    return file_rows(directory / f"focus-{name}-{month}.csv")


def hours_of(rows: list[dict[str, Any]], *columns: str) -> list[tuple[str, ...]]:
    return [(f"{row['ChargePeriodStart']:%d %H:%M}", *(str(row[name]) for name in columns)) for row in rows]


# Journal


def test_the_journal_of_a_month_is_balanced_and_the_same_twice(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    ingest_tokens(token_record(input_tokens=1_000_000, cache_read_input_tokens=250_000, output_tokens=123_456))
    bill()
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    done = manage("export_journal", "2026-10", "--out", first, "--provider-cost-center", "CC-900", "--json")
    assert done.status == 0
    assert json.loads(done.out) | {"file": ""} == {
        "period": "2026-10", "file": "", "journals": 2, "debit": "421.78", "credit": "421.78", "posted_otherwise": [],
    }
    assert [(row["cost_center"], row["debit"], row["credit"], row["invoice_number"][-1]) for row in file_rows(first)] == [
        ("CC-220", "209.62", "", "1"), ("CC-900", "", "209.62", "1"),
        ("CC-210", "209.62", "", "2"), ("CC-900", "", "209.62", "2"),
        ("CC-210", "2.54", "", "2"), ("CC-900", "", "2.54", "2"),
    ]  # fmt: skip
    manage("export_journal", "2026-10", "--out", second, "--provider-cost-center", "CC-900")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["a.csv", "b.csv"]


def test_the_chart_of_accounts_may_be_a_file_and_options_go_before_it(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    chart, out = tmp_path / "chart.yaml", tmp_path / "j.csv"
    chart.write_text(
        "company_code: '1000'\nconsumer_account: 06001\nprovider_account: '6002'\nposting_date: 2026-11-04\n"
        "internal_orders: {nlp: IO-7}\n"
    )
    manage("export_journal", "2026-10", "--out", out, "--accounts", chart, "--company-code", "2000")
    assert [
        tuple(row[name] for name in ("company_code", "account", "internal_order", "posting_date")) for row in file_rows(out)
    ] == [("2000", "06001", "IO-7", "2026-11-04"), ("2000", "6002", "", "2026-11-04")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("surprise: x", "field 'surprise' is none of"),
        ("company_code: [1000]", "company_code ['1000'] must be text"),
        ("posting_date: 2026-02-30", "posting_date '2026-02-30' must be a date"),
        ("company_code: '1000'\ncompany_code: '2000'", "field 'company_code' is given twice"),
        ("cost_centers: {nlp: CC-1, nlp: CC-2}", "field 'nlp' is given twice"),
        ("cost_centers: {nlp: " + 5000 * "[", "nested too deeply"),
        ("cost_centers: {nlp: &a CC-1, cv: *a}", "references (*name) are not read"),
        ("#" * 1024 * 1024 + "#", "larger than 1048576 bytes"),
        ("cost_centers: [a]", "cost_centers must map team codes"),
        ("posting_date: soon", "posting_date 'soon' must be a date"),
        ("[", "is no YAML"),
    ],
)
def test_a_chart_that_says_something_else_is_bad_input(tmp_path: Path, manage: Manage, content: str, said: str) -> None:
    chart = tmp_path / "chart.yaml"
    chart.write_text(content)
    done = manage("export_journal", "2026-10", "--out", tmp_path / "j.csv", "--accounts", chart)
    assert (done.status, said in done.err, done.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("command", ["export_journal", "export_focus"])
def test_nothing_leaves_before_every_draft_is_issued(tmp_path: Path, manage: Manage, command: str) -> None:
    apply(tmp_path, billing=FOUR_EYES)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    out = tmp_path / "out"
    assert manage(command, "2026-10", "--out", out).status == 2
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert "2 of 2 invoices of 2026-10 are not issued (cv, nlp)" in manage(command, "2026-10", "--out", out).err
    invoices_approve(month="2026-10", actor="wang", team="cv")
    invoices_issue(month="2026-10", actor="wang", now=OCTOBER_OVER)
    done = manage(command, "2026-10", "--out", out)
    assert (done.status, "1 of 2 invoices of 2026-10 are not issued (nlp)" in done.err) == (3, True)
    assert not out.exists()
    invoices_approve(month="2026-10", actor="wang")
    invoices_issue(month="2026-10", actor="wang", now=OCTOBER_OVER)
    assert manage(command, "2026-10", "--out", out).status == 0
    assert out.exists()


@pytest.mark.parametrize("command", ["export_journal", "export_focus"])
def test_a_month_without_charges_has_nothing_to_export(tmp_path: Path, manage: Manage, command: str) -> None:
    apply(tmp_path)
    bill()
    done = manage(command, "2026-10", "--out", tmp_path / "out")
    assert (done.status, "no invoice of 2026-10 is issued" in done.err) == (3, True)


def test_a_team_without_cost_centre_holds_the_journal(tmp_path: Path, manage: Manage) -> None:
    teams = [{"code": "nlp", "name": "NLP Research"}, SET_UP["teams"][1]]
    apply(tmp_path, teams=teams)
    ingest_allocations(allocation_record())
    bill()
    done = manage("export_journal", "2026-10", "--out", tmp_path / "j.csv")
    assert (done.status, "team nlp has no cost centre" in done.err) == (3, True)
    assert not (tmp_path / "j.csv").exists()


# FOCUS


def test_one_gpu_hour_over_three_clock_hours_is_split_by_hand(tmp_path: Path, manage: Manage) -> None:
    """Half a GPU from 00:30 to 02:30 is 0.25 + 0.5 + 0.25 GPU-hours: 2.50 + 5.00 + 2.50."""
    apply(tmp_path)
    ingest_allocations(
        hold(1, "2026-10-10T00:30:00Z", "2026-10-10T02:30:00Z", quantity=1, device_fraction="0.5", site="bj-1")
    )
    bill()
    assert manage("export_focus", "2026-10", "--out", tmp_path / "f").status == 0
    rows = parquet(tmp_path / "f")
    assert hours_of(rows, "BilledCost", "PricingQuantity", "ListCost") == [
        ("10 00:00", "2.50", "0.250000", "2.5000000000"),
        ("10 01:00", "5.00", "0.500000", "5.0000000000"),
        ("10 02:00", "2.50", "0.250000", "2.5000000000"),
    ]
    assert text(tmp_path / "f")[0] | {"Tags": "", "SkuPriceDetails": ""} == {
        "BilledCost": "2.50", "EffectiveCost": "2.50", "ListCost": "2.5", "ContractedCost": "2.5",
        "BillingAccountId": "nlp", "BillingAccountName": "NLP Research", "BillingAccountType": "Team",
        "BillingCurrency": "CNY", "BillingPeriodStart": "2026-09-30T16:00:00Z", "BillingPeriodEnd": "2026-10-31T16:00:00Z",
        "ChargePeriodStart": "2026-10-10T00:00:00Z", "ChargePeriodEnd": "2026-10-10T01:00:00Z",
        "ChargeCategory": "Usage", "ChargeClass": "", "ChargeFrequency": "Usage-Based",
        "ChargeDescription": "GPU-Hours of NVIDIA-H800 for hq-1/nlp-train, price version 2026-10",
        "PricingQuantity": "0.25", "PricingUnit": "GPU-Hours", "PricingCategory": "Standard",
        "ConsumedQuantity": "0.25", "ConsumedUnit": "GPU-Hours", "ListUnitPrice": "10", "ContractedUnitPrice": "10",
        "ServiceCategory": "Compute", "ServiceSubcategory": "Other (Compute)", "ServiceName": "GPU Training",
        "ServiceProviderName": "AI-INFRA", "HostProviderName": "AI-INFRA", "InvoiceIssuerName": "AI-INFRA",
        "InvoiceId": "AI-INFRA-2026-000001", "InvoiceDetailId": "AI-INFRA-2026-000001-0001", "SkuId": "NVIDIA-H800",
        "SkuMeter": "GPU Hours", "SkuPriceId": "NVIDIA-H800", "SkuPriceDetails": "",
        "SubAccountId": "hq-1/nlp-train", "SubAccountName": "nlp-train", "SubAccountType": "Namespace",
        "ResourceId": "hq-1/nlp-train/pod/uid-1", "ResourceName": "uid-1", "ResourceType": "Job",
        "RegionId": "bj-1", "RegionName": "bj-1", "Tags": "", "x_PriceVersion": "2026-10", "x_ChargeMonth": "2026-10",
        "CommitmentDiscountId": "", "CommitmentDiscountName": "", "CommitmentDiscountCategory": "",
        "CommitmentDiscountType": "", "CommitmentDiscountStatus": "", "CommitmentDiscountQuantity": "",
        "CommitmentDiscountUnit": "", "ContractApplied": "", "AllocatedMethodId": "", "AllocatedMethodDetails": "",
        "AllocatedResourceId": "", "AllocatedResourceName": "", "AllocatedTags": "",
        "x_TokenDirection": "", "x_TokenCacheAction": "", "x_ModelId": "", "x_PolicyVersion": "",
        "x_EfficiencyReason": "", "x_Mfu": "", "x_Hfu": "", "x_Coverage": "", "x_EnergyKwh": "", "x_CarbonKg": "",
    }  # fmt: skip
    assert json.loads(text(tmp_path / "f")[0]["SkuPriceDetails"]) == {"GpuCount": 1, "InstanceType": "NVIDIA-H800"}


def test_rewards_are_credits_and_penalties_adjustments_with_their_evidence(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=1),
        hold(2, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=1),
        hold(3, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", quantity=1),
    )
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", "7200", "0.60", "0.70")
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", "7200", "0.10", "0.15", uid="uid-2")
    bill()
    assert manage("export_focus", "2026-10", "--out", tmp_path / "f").status == 0
    rows = [row for row in parquet(tmp_path / "f") if row["ChargeCategory"] != "Usage"]
    names = ("ChargeCategory", "BilledCost", "ContractedCost", "PricingQuantity", "ResourceName", "x_EfficiencyReason")
    assert sorted(hours_of(rows, *names)) == [
        ("10 00:00", "Adjustment", "2.00", "2.0000000000", "None", "uid-2", "penalty"),
        ("10 00:00", "Credit", "-1.00", "-1.0000000000", "None", "uid-1", "reward"),
        ("10 01:00", "Adjustment", "2.00", "2.0000000000", "None", "uid-2", "penalty"),
        ("10 01:00", "Credit", "-1.00", "-1.0000000000", "None", "uid-1", "reward"),
    ]
    assert {(row["x_PolicyVersion"], row["x_Hfu"], row["x_Coverage"]) for row in rows} == {
        ("std", Decimal("0.7"), Decimal(1)), ("std", Decimal("0.15"), Decimal(1)),
    }  # fmt: skip
    assert sum(row["BilledCost"] for row in parquet(tmp_path / "f")) == Decimal("52.00")


def test_tokens_are_one_row_per_class_and_hour(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_tokens(
        token_record(input_tokens=1_000_000, cache_read_input_tokens=250_000, output_tokens=123_456, site="sh-2"),
        token_record(2, time="2026-10-15T13:59:59.999+08:00", input_tokens=0, cache_read_input_tokens=0, output_tokens=1,
                     reasoning_output_tokens=0),
    )  # fmt: skip
    bill()
    manage("export_focus", "2026-10", "--out", tmp_path / "f")
    names = ("SkuMeter", "x_TokenDirection", "x_TokenCacheAction", "ConsumedQuantity", "PricingQuantity", "BilledCost")
    assert hours_of(parquet(tmp_path / "f"), *names) == [
        ("15 04:00", "Cached Input Tokens", "Input", "Read", "250000.000000", "0.250000", "0.05"),
        ("15 04:00", "Input Tokens", "Input", "None", "750000.000000", "0.750000", "1.50"),
        ("15 04:00", "Output Tokens", "Output", "None", "123456.000000", "0.123456", "0.99"),
        ("15 05:00", "Output Tokens", "Output", "None", "1.000000", "0.000001", "0.00"),
    ]
    row = text(tmp_path / "f")[0]
    assert (row["PricingUnit"], row["ConsumedUnit"], row["ServiceCategory"], row["ServiceName"]) == (
        "1000000 Tokens", "Tokens", "AI and Machine Learning", "Model Inference",
    )  # fmt: skip
    assert (row["ResourceId"], row["x_ModelId"], row["SubAccountId"], row["RegionId"]) == (
        "litellm-hq/llama-3-8b", "llama-3-8b", "nlp-key-1", "sh-2",
    )  # fmt: skip


def test_a_price_that_changes_within_an_hour_makes_two_rows_of_that_hour(tmp_path: Path, manage: Manage) -> None:
    """1 GPU from 00:00 to 01:00, price 10 until 00:15, then 20: 2.50 and 15.00; tokens of both quarters apart too."""
    old, new = SET_UP["price_versions"][0], {**SET_UP["price_versions"][0], "name": "new"}
    new |= {"valid_from": "2026-10-10T00:15:00Z", "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}]}
    apply(tmp_path, price_versions=[old, new])
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", quantity=1))
    counts = {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1_000_000}
    ingest_tokens(*(token_record(minute, time=f"2026-10-10T00:{minute}:00Z", **counts) for minute in (10, 20, 30)))
    bill()
    assert manage("export_focus", "2026-10", "--out", tmp_path / "f").status == 0
    assert hours_of(parquet(tmp_path / "f"), "x_PriceVersion", "BilledCost", "PricingQuantity") == [
        ("10 00:00", "2026-10", "2.50", "0.250000"), ("10 00:00", "new", "15.00", "0.750000"),
        ("10 00:00", "2026-10", "8.00", "1.000000"), ("10 00:00", "new", "16.00", "2.000000"),
    ]  # fmt: skip


def test_late_usage_is_a_correction_of_its_own_hours_on_the_later_invoice(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z"))
    bill()
    ingest_allocations(
        hold(2, "2026-10-20T05:30:00Z", "2026-10-20T06:30:00Z", quantity=1),
        hold(3, "2026-11-05T00:00:00Z", "2026-11-05T01:00:00Z", quantity=1),
    )
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill("2026-11", NOVEMBER_OVER)
    assert manage("export_focus", "2026-11", "--out", tmp_path / "f").status == 0
    rows = parquet(tmp_path / "f", month="2026-11")
    assert [(f"{row['ChargePeriodStart']:%m-%d %H}", row["ChargeClass"], str(row["BilledCost"])) for row in rows] == [
        ("11-05 00", None, "10.00"), ("10-20 05", "Correction", "5.00"), ("10-20 06", "Correction", "5.00"),
        ("10-15 04", "Correction", "8.00"),
    ]  # fmt: skip
    assert {row["BillingPeriodStart"] for row in rows} == {datetime(2026, 10, 31, 16, tzinfo=UTC)}
    assert manage("export_focus", "2026-10", "--out", tmp_path / "f").status == 0
    assert sum(row["BilledCost"] for row in parquet(tmp_path / "f")) == Decimal("80.00")


def test_slices_are_priced_by_the_slice_hour_and_the_platforms_use_is_left_out(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", resource="nvidia.com/mig-1g.10gb", quantity=3,
             device_fraction="0.142857142857"),
        allocation_record(2, namespace="serving"),
    )  # fmt: skip
    bill()
    manage("export_focus", "2026-10", "--out", tmp_path / "f")
    assert hours_of(parquet(tmp_path / "f"), "PricingUnit", "PricingQuantity", "BilledCost", "SkuMeter") == [
        ("10 00:00", "Slice-Hours", "3.000000", "5.15", "Slice Hours"),
        ("10 01:00", "Slice-Hours", "3.000000", "5.14", "Slice Hours"),
    ]


def test_every_data_set_adds_up_to_the_invoices_and_is_the_same_twice(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(
        *(hold(number, f"2026-10-{number:02d}T00:17:13Z", f"2026-10-{number + 3:02d}T05:01:59.5Z",
               namespace="cv" if number % 3 else "nlp-train") for number in range(2, 20))
    )  # fmt: skip
    ingest_tokens(*(token_record(number, output_tokens=1_000 * number) for number in range(1, 40)))
    sample("2026-10-02T01:00:00Z", "2026-10-05T04:00:00Z", "2160000", "0.10", "0.10", uid="uid-2")
    bill()
    for name in ("a", "b"):
        assert manage("export_focus", "2026-10", "--out", tmp_path / name).status == 0
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == sorted(f"focus-{name}-2026-10.{suffix}" for name in SETS for suffix in ("csv", "parquet"))
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    totals = dict(Invoice.objects.values_list("number", "total"))
    for name in ("cost-and-usage", "invoice-detail"):
        for rows in (parquet(tmp_path / "a", name), text(tmp_path / "a", name)):
            sums: dict[str, Decimal] = defaultdict(Decimal)
            for row in rows:
                sums[row["InvoiceId"]] += Decimal(row["BilledCost"])
            assert sums == totals
    periods = text(tmp_path / "a", "billing-period")
    assert [(row["BillingPeriodStatus"], row["BillingPeriodLastUpdated"]) for row in periods] == [
        ("Closed", "2026-11-01T00:05:00Z")
    ]
    assert not [value for row in text(tmp_path / "a") for value in row.values() if "E-" in value]


def test_an_invoice_detail_names_its_grain_and_its_own_invoice(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    manage("export_focus", "2026-10", "--out", tmp_path / "f")
    (row,) = text(tmp_path / "f", "invoice-detail")
    assert json.loads(row.pop("InvoiceDetailGrain")) == {
        "ServiceName": "GPU Training", "SkuId": "NVIDIA-H800", "SkuMeter": "GPU Hours",
        "SkuPriceId": "NVIDIA-H800", "SubAccountId": "hq-1/nlp-train", "x_ChargeMonth": "2026-10",
        "x_PriceVersion": "2026-10",
    }  # fmt: skip
    assert (row["BilledCost"], row["InvoiceIssueStatus"], row["PaymentTerms"]) == ("209.62", "Issued", "internal transfer")
    assert row["ReferenceInvoiceId"] == row["InvoiceId"] == "AI-INFRA-2026-000001"
    assert row["InvoiceDetailCreated"] == row["InvoiceIssueDate"] == "2026-11-01T00:05:00Z"


def test_a_violation_refuses_the_export_and_leaves_what_was_there(
    tmp_path: Path, manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    out = tmp_path / "f"
    assert manage("export_focus", "2026-10", "--out", out).status == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    finish = Conformance.finish
    monkeypatch.setattr(
        Conformance, "finish", lambda self, totals: finish(self, {name: total + 1 for name, total in totals.items()})
    )
    done = manage("export_focus", "2026-10", "--out", out)
    assert (done.status, "is 209.62, the invoice 210.62" in done.err) == (3, True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_usage_that_no_longer_explains_a_line_refuses_the_export(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    rewrite("UPDATE usage_allocationrevision SET until = until - interval '1 second'")
    done = manage("export_focus", "2026-10", "--out", tmp_path / "f")
    assert (done.status, "line 1 of AI-INFRA-2026-000001 no longer follows from its usage" in done.err) == (3, True)
    assert not (tmp_path / "f").exists() or not list((tmp_path / "f").iterdir())


def test_in_a_zone_of_half_an_hour_the_month_cuts_its_first_and_last_hour(tmp_path: Path, manage: Manage) -> None:
    """October in India begins at 18:30 UTC: of one GPU held from 18:00 to 20:00 its first half-hour is September's."""
    zone = {**SET_UP["billing"], "zone": "Asia/Kolkata"}
    price = {**SET_UP["price_versions"][0], "valid_from": "2026-01-01T00:00:00Z"}
    apply(tmp_path, billing=zone, price_versions=[price])
    ingest_allocations(hold(1, "2026-09-30T18:00:00Z", "2026-09-30T20:00:00Z", quantity=1))
    counts = {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1_000_000}
    ingest_tokens(*(token_record(minute, time=f"2026-09-30T18:{minute}:00Z", **counts) for minute in (10, 40)))
    bill("2026-09")
    bill()
    rows = {}
    for month in ("2026-09", "2026-10"):
        assert manage("export_focus", month, "--out", tmp_path / "f").status == 0
        rows[month] = hours_of(parquet(tmp_path / "f", month=month), "ChargePeriodEnd", "BilledCost")
    until = "2026-09-30 {}:00+00:00"
    assert rows["2026-09"] == [("30 18:00", until.format("18:30"), "5.00"), ("30 18:00", until.format("18:30"), "8.00")]
    assert rows["2026-10"] == [
        ("30 18:30", until.format("19:00"), "5.00"), ("30 19:00", until.format("20:00"), "10.00"),
        ("30 18:30", until.format("19:00"), "8.00"),
    ]  # fmt: skip


def test_an_export_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in (".AI-INFRA-2026-000001.pdf.99", ".focus-cost-and-usage-2026-10.csv.99", ".somebody.else.99"):
        (folder / name).write_bytes(b"half")
    assert manage("export_invoices", "2026-10", "--out", folder).status == 0
    assert manage("export_focus", "2026-10", "--out", folder).status == 0
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".somebody.else.99"]
    assert (folder / "AI-INFRA-2026-000001.pdf").read_bytes().startswith(b"%PDF")
