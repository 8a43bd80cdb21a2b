"""FOCUS parts: whatever the hours and amounts, the parts of a line are the line, to the cent and the last digit."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.exports.focus.billing_records import detail_rows, period_rows
from billing.exports.focus.conformance import Conformance, ConformanceError
from billing.exports.focus.cost_and_usage import SplitLine, rows_of
from billing.exports.focus.files import as_text
from billing.exports.focus.shares import shares_of
from billing.rating.grains import Place
from metering.intervals import Interval
from pricing.money import round_to

START = datetime(2026, 9, 30, 16, tzinfo=UTC)
OCTOBER = Interval(START, datetime(2026, 10, 31, 16, tzinfo=UTC))
SEPTEMBER = Interval(datetime(2026, 8, 31, 16, tzinfo=UTC), START)
ISSUED = datetime(2026, 11, 4, 9, 30, 15, 250_000, tzinfo=UTC)
MICROSECONDS = 3_600_000_000


def line(**changed: Any) -> dict[str, Any]:
    """A GPU line of 10.00 for one GPU-hour at 10."""
    return {
        "position": 1, "kind": "gpu", "cluster": "hq-1", "namespace": "nlp-train", "consumer": None,
        "accelerator": "NVIDIA-H800", "sku": "NVIDIA-H800", "token_class": None, "quantity": "1.000000",
        "unit": "GPU-Hours", "unit_price": "10.0000", "amount": "10.00", "price_version": "2026-10", "policy": None,
        "reason": None, "charge_period": "2026-10", "charge_class": None, "energy_kwh": None, **changed,
    }  # fmt: skip


def document(*lines: dict[str, Any]) -> dict[str, Any]:
    total = sum((Decimal(item["amount"]) for item in lines), Decimal("0.00"))
    return {
        "number": "AI-INFRA-2026-000001", "issuer": {"name": "AI-INFRA"}, "currency": "CNY",
        "recipient": {"team": "nlp", "name": "NLP Research", "cost_center": "CC-210"},
        "period": {"month": "2026-10", "start_utc": "2026-09-30T16:00:00Z", "end_utc": "2026-10-31T16:00:00Z"},
        "lines": list(lines), "total": str(total),
    }  # fmt: skip


def places(*usage: int, start: datetime = START) -> dict[Place, Decimal]:
    return {
        Place(start + timedelta(hours=index), "pod/uid-1", ""): Decimal(value)
        for index, value in enumerate(usage)
    }


def table(*items: tuple[dict[str, Any], dict[Place, Decimal], Interval]) -> pa.Table:
    split = [SplitLine(item, shares_of(item, where, window), {}) for item, where, window in items]
    return rows_of(document(*(item for item, _, _ in items)), split)


def check(rows: pa.Table, *lines: dict[str, Any], closed: tuple[Interval, ...] = (), total: str | None = None) -> None:
    invoice = document(*lines)
    conformance = Conformance(OCTOBER, closed)
    conformance.cost_and_usage(rows)
    conformance.invoice_detail(detail_rows(invoice, ISSUED))
    conformance.finish({invoice["number"]: Decimal(total or invoice["total"])})


def broken(rows: pa.Table, *lines: dict[str, Any], **keywords: Any) -> str:
    with pytest.raises(ConformanceError) as refused:
        check(rows, *lines, **keywords)
    return "; ".join(refused.value.violations)


def put(rows: pa.Table, column: str, *values: Any) -> pa.Table:
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), pa.array(values, type=rows.schema.field(index).type))


# By hand


def test_f16_ten_yuan_over_24_equal_hours() -> None:
    shares = shares_of(line(), places(*[1] * 24), OCTOBER)
    assert [str(share.amount) for share in shares] == ["0.42"] * 16 + ["0.41"] * 8


def test_thirds_give_the_cent_to_the_earlier_hour_and_list_cost_keeps_all_digits() -> None:
    shares = shares_of(line(energy_kwh="1.000"), places(1, 1, 1), OCTOBER)
    assert [str(share.amount) for share in shares] == ["3.34", "3.33", "3.33"]
    assert [str(share.quantity) for share in shares] == ["0.333334", "0.333333", "0.333333"]
    assert [str(share.list_cost) for share in shares] == ["3.3333400000", "3.3333300000", "3.3333300000"]
    assert [str(share.energy_kwh) for share in shares] == ["0.334", "0.333", "0.333"]


def test_text_has_no_exponent_and_null_stays_null() -> None:
    small = line(quantity="0.000001", amount="0.00", unit_price="0.0100")
    text = as_text(table((small, places(1), OCTOBER))).to_pylist()[0]
    assert (text["ListCost"], text["PricingQuantity"], text["BilledCost"]) == ("0.00000001", "0.000001", "0.00")
    assert (text["ChargePeriodStart"], text["x_Hfu"], text["ChargeClass"]) == ("2026-09-30T16:00:00Z", None, None)


def test_a_period_last_changed_with_its_last_invoice() -> None:
    rows = period_rows(
        start=OCTOBER.start, end=OCTOBER.end, closed_at=ISSUED - timedelta(days=2), issued_at=[ISSUED], issuers=["A"]
    )
    assert rows.to_pylist()[0]["BillingPeriodLastUpdated"] == ISSUED.replace(microsecond=0)


# What conformance refuses


def test_clean_rows_pass() -> None:
    check(table((line(), places(1, 2, 3), OCTOBER)), line())


def test_a_cent_that_is_missing_is_refused() -> None:
    rows = table((line(), places(1, 1), OCTOBER))
    wrong = put(put(rows, "BilledCost", Decimal("5.00"), Decimal("4.99")), "EffectiveCost", Decimal("5.00"), Decimal("4.99"))
    assert "sum of BilledCost of InvoiceId AI-INFRA-2026-000001 is 9.99, the invoice 10.00" in broken(wrong, line())


def test_an_invoice_that_is_not_its_lines_is_refused() -> None:
    assert "the invoice 10.01" in broken(table((line(), places(1), OCTOBER)), line(), total="10.01")


def test_list_cost_that_is_not_price_times_quantity_is_refused() -> None:
    rows = put(table((line(), places(1), OCTOBER)), "ListCost", Decimal("9.99"))
    assert "ListCost = ListUnitPrice x PricingQuantity (1 rows)" in broken(rows, line())


def test_a_row_that_bills_something_else_than_its_price_is_refused() -> None:
    cheap = line(amount="9.90")
    assert "BilledCost is ContractedCost but for rounding" in broken(table((cheap, places(1), OCTOBER)), cheap)


def test_null_where_none_is_allowed_and_words_outside_a_closed_list_are_refused() -> None:
    rows = put(table((line(), places(1), OCTOBER)), "ServiceCategory", "Supercomputing")
    found = broken(put(rows, "BillingAccountId", None), line())
    assert "ServiceCategory is none of its closed list (1 rows)" in found
    assert "BillingAccountId must not be null (1 rows)" in found


def test_a_column_of_another_type_is_refused() -> None:
    rows = table((line(), places(1), OCTOBER))
    index = rows.schema.get_field_index("BilledCost")
    assert "BilledCost are missing or of another type" in broken(
        rows.set_column(index, "BilledCost", pa.array([10.0])), line()
    )


def test_a_correction_needs_a_closed_charge_period() -> None:
    late = line(charge_class="Correction", charge_period="2026-09")
    rows = table((late, places(1, start=SEPTEMBER.start), SEPTEMBER))
    check(rows, late, closed=(SEPTEMBER,))
    assert "a Correction lies in a closed charge period (1 rows)" in broken(rows, late)


def test_usage_of_another_month_that_is_no_correction_is_refused() -> None:
    rows = table((line(), places(1, start=SEPTEMBER.start), SEPTEMBER))
    assert "what is no Correction lies in the billing period (1 rows)" in broken(rows, line(), closed=(SEPTEMBER,))


def test_a_quantity_without_unit_is_refused() -> None:
    rows = put(table((line(), places(1), OCTOBER)), "PricingUnit", None)
    assert "PricingUnit is null exactly where PricingQuantity is" in broken(rows, line())


# Whatever comes


@given(
    usage=st.lists(st.integers(min_value=1, max_value=8 * MICROSECONDS), min_size=1, max_size=60),
    price=st.decimals(min_value="0", max_value="50000", places=4, allow_nan=False),
)
def test_the_parts_of_any_line_are_the_line_and_conform(usage: list[int], price: Decimal) -> None:
    quantity = Decimal(sum(usage)) / MICROSECONDS
    shown = round_to(quantity, 6)
    amount = round_to(price * Decimal(sum(usage)) / MICROSECONDS, 2)
    item = line(quantity=f"{shown:f}", unit_price=f"{price:f}", amount=f"{amount:f}", energy_kwh="3.141")
    rows = table((item, places(*usage), OCTOBER))
    check(rows, item)
    columns = {name: rows.column(name).to_pylist() for name in ("BilledCost", "PricingQuantity", "x_EnergyKwh")}
    assert {name: sum(values) for name, values in columns.items()} == {
        "BilledCost": amount, "PricingQuantity": shown, "x_EnergyKwh": Decimal("3.141"),
    }  # fmt: skip


@given(usage=st.lists(st.integers(min_value=1, max_value=10**9), min_size=1, max_size=40), cents=st.integers(1, 10**7))
def test_a_credit_mirrors_its_charge_hour_by_hour(usage: list[int], cents: int) -> None:
    amount = Decimal(cents).scaleb(-2)
    charge = line(kind="efficiency", amount=f"{amount:f}", unit_price="1.0000")
    credit = line(kind="efficiency", amount=f"{-amount:f}", unit_price="-1.0000")
    pair = (shares_of(item, places(*usage), OCTOBER) for item in (charge, credit))
    assert all(a.amount == -b.amount for a, b in zip(*pair, strict=True))
