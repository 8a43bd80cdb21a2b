"""Cost and Usage with the columns of FOCUS 1.0: the same rows, and what the public validator asks of each column."""

import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.exports.focus.columns import CLOSED_LISTS
from billing.exports.focus.version_1_0 import COLUMNS, RENAMED
from tests.cli import PROJECT
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import NOVEMBER_OVER, bill, credit, part, people
from tests.factories.pages import file_rows

pytestmark = pytest.mark.django_db

NEVER_NULL = (
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
    "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName",
    "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
)  # fmt: skip
DECIMALS = (
    "BilledCost", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "ListCost",
    "ListUnitPrice", "PricingQuantity",
)  # fmt: skip
INSTANTS = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
"""The rules of focus-validator 1.0.0 for version 1.0, by kind."""


@pytest.fixture(scope="module")
def exported(for_all_tests: Path) -> Path:
    """GPU hours, tokens and, in November, a credit note and late usage."""
    people()
    apply(for_all_tests)
    ingest_allocations(allocation_record())
    ingest_tokens(token_record(output_tokens=1_000_000))
    bill()
    credit(part("64.00"), code="sla", by="lea")
    ingest_allocations(allocation_record(2, namespace="cv"))
    bill("2026-11", NOVEMBER_OVER)
    for month in ("2026-10", "2026-11"):
        call_command("export_focus", month, "--out", str(for_all_tests), "--with-1.0")
    return for_all_tests


def rows_of(directory: Path, month: str, name: str = "1.0-cost-and-usage") -> list[dict[str, str]]:
    return file_rows(directory / f"focus-{name}-{month}.csv")


@pytest.mark.parametrize("month", ["2026-10", "2026-11"])
def test_every_column_is_there_and_keeps_the_rules_of_the_validator(exported: Path, month: str) -> None:
    rows = rows_of(exported, month)
    assert rows
    assert [name for name in rows[0] if not name.startswith("x_")] == list(COLUMNS)
    assert len(COLUMNS) == 43
    for row in rows:
        assert not [name for name in NEVER_NULL if not row[name]]
        assert all(re.fullmatch(r"-?\d+(\.\d+)?", row[name]) for name in DECIMALS if row[name])
        assert all(datetime.fromisoformat(row[name]).utcoffset() == timedelta(0) for name in INSTANTS)
        assert all(row[name] in allowed for name, allowed in CLOSED_LISTS.items() if row.get(name))
        assert not row["Tags"] or isinstance(json.loads(row["Tags"]), dict)
    assert {row["ProviderName"] for row in rows} == {row["PublisherName"] for row in rows}


def test_the_rows_are_those_of_1_4_and_add_up_to_the_same(exported: Path) -> None:
    for month in ("2026-10", "2026-11"):
        old, new = rows_of(exported, month), rows_of(exported, month, "cost-and-usage")
        shared = old[0].keys() & new[0].keys()
        assert [{name: row[name] for name in shared} for row in old] == [{name: row[name] for name in shared} for row in new]
    notes = {row["ChargeClass"] for row in rows_of(exported, "2026-11")}
    assert notes == {"Correction"}
    table = pq.read_table(exported / "focus-1.0-cost-and-usage-2026-10.parquet")
    assert table.schema.metadata[b"FocusVersion"] == b"1.0"
    assert sum(row["BilledCost"] for row in table.to_pylist()) == Decimal("217.62")


def test_the_page_documents_the_columns_that_are_mapped() -> None:
    page = (PROJECT / "docs" / "focus.md").read_text()
    for name in (*RENAMED, "AvailabilityZone", "ChargeType", "InvoiceIssuer", "Provider", "Publisher", "ResourceID"):
        assert f"`{name}`" in page


def test_without_being_asked_there_is_no_1_0(exported: Path, tmp_path: Path) -> None:
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "plain"))
    assert not list((tmp_path / "plain").glob("focus-1.0-*"))
