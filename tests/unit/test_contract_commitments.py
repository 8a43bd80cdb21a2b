"""The rules of FOCUS Contract Commitment: terms that break one are refused."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from billing.exports.focus.conformance import Conformance
from billing.exports.focus.contract_commitments import Issue, Terms, commitment_rows
from metering.intervals import Interval
from pricing.commitments import Commitment as CommittedHours


def broken(table: pa.Table, column: str, value: Any) -> list[str]:
    """The rules of Contract Commitment that break when a column of every row says something else."""
    index, field = table.schema.names.index(column), table.schema.field(column)
    changed = table.set_column(index, field, pa.array([value] * len(table), type=field.type))
    window = Interval(datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC))
    conformance = Conformance(window, [])
    conformance.contract_commitment(changed)
    return conformance.violations


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("ContractCommitmentPeriodEnd", datetime(2026, 1, 1, tzinfo=UTC), "its period starts before it ends"),
        ("ContractCommitmentQuantity", None, "Unit is null exactly where Quantity is"),
        ("ContractCommitmentDiscountPercentage", None, "a Discount has a percentage"),
        ("ContractCommitmentDiscountPercentage", Decimal("1.5"), "the percentage lies between 0 and 1"),
        ("ContractCommitmentPaymentModel", "All Upfront", "all upfront is paid one time"),
        ("ContractCommitmentModel", "Flexible", "none of its closed list"),
        ("BillingCurrency", None, "the currency is stated"),
    ],
)
def test_terms_that_focus_forbids_are_refused(column: str, value: Any, rule: str) -> None:
    start = datetime(2026, 9, 30, 16, tzinfo=UTC)
    one = CommittedHours("nlp-2026", "nlp", "NVIDIA-H800", Decimal(1000), Decimal(8), start)
    issue = Issue(Interval(start, datetime(2026, 10, 31, 16, tzinfo=UTC)), "Asia/Shanghai", "CNY", "AI-INFRA")
    table = commitment_rows([Terms(one, start, None, Decimal(10))], issue)
    assert broken(table, "ContractId", "another") == []
    assert any(rule in violation for violation in broken(table, column, value))
