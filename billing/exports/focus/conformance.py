"""PURE: rules of FOCUS 1.4 for exported files; an export that breaks one is refused, not delivered.

The project has its own checks, since public validators lag behind the specification. Rows are checked batch by batch;
sums are kept across batches. A rule is an expression that is true for rows that break it; a violation has the rule and
their number.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.exports.focus.columns import (
    BILLING_PERIOD,
    CLOSED_LISTS,
    COST_AND_USAGE,
    INVOICE_DETAIL,
    PRODUCT,
)
from billing.exports.focus.contract_commitments import CONTRACT_COMMITMENT
from metering.intervals import Interval
from metering.messages import Message, UserError
from pricing.money import smallest_amount

ZERO = Decimal("0.00")
QUANTITY_ERROR = Decimal("0.000002")
"""Largest error of a row's quantity: less than two of the last digit."""
WIDE = pa.decimal128(28, 10)
Rules = Mapping[str, pc.Expression]
"""Rules: the text, and an expression that is true for rows that break it."""


class ConformanceError(UserError):
    """Rows that FOCUS forbids."""

    code = "focus_conformance"

    def __init__(self, violations: Sequence[str]) -> None:
        shown = "; ".join(violations[:10])
        super().__init__(Message(
            "%(n)s rules of FOCUS 1.4 are broken: %(violations)s", n=len(violations), violations=shown
        ))
        self.violations = list(violations)


def _of(name: str) -> pc.Expression:
    return pc.field(name)


def _is(name: str, value: str) -> pc.Expression:
    """Return an expression that is true where the column has the value; false for null."""
    # not `==`, which is null for null and would hide the row from the rule
    return pc.field(name).isin([value])


def _has(name: str) -> pc.Expression:
    return pc.field(name).is_valid()


def _together(names: Iterable[str], other: str) -> dict[str, pc.Expression]:
    return {f"{name} is null exactly where {other} is": _has(name) != _has(other) for name in names}


USAGE, PURCHASE, UNUSED = (
    _is("ChargeCategory", "Usage"), _is("ChargeCategory", "Purchase"), _is("CommitmentDiscountStatus", "Unused"),
)  # fmt: skip
COMMITTED, REGULAR = _has("CommitmentDiscountId"), ~_has("ChargeClass")  # a reversal keeps its category, not its sign


def _cost_rules() -> dict[str, pc.Expression]:
    billed, quantity, effective = map(_of, ("BilledCost", "PricingQuantity", "EffectiveCost"))
    consumed = COMMITTED & ~PURCHASE
    rules = {
        "EffectiveCost = BilledCost without a commitment": ~COMMITTED & (effective != billed),
        "the purchase of a commitment has no EffectiveCost": PURCHASE & (effective != ZERO),
        "what a commitment pays for has no BilledCost": consumed & (billed != ZERO),
    }
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        rules[f"{price} is not negative"] = _of(price) < ZERO
        rules[f"{cost} = {price} x PricingQuantity"] = _of(cost) != _of(price) * quantity
        rules[f"{cost} = BilledCost without a price"] = ~COMMITTED & ~USAGE & (_of(cost) != billed.cast(PRODUCT))
    rules["a Credit is not positive"] = REGULAR & _is("ChargeCategory", "Credit") & (billed > ZERO)
    rules["a penalty is not negative"] = REGULAR & _is("ChargeCategory", "Adjustment") & (billed < ZERO)
    return rules


def _rounding_rules() -> dict[str, pc.Expression]:
    """Return the rule on rounding: the error of a row, from rounding its line and from its split, is below two cents."""
    billed, contracted = _of("BilledCost").cast(WIDE), _of("ContractedCost").cast(WIDE)
    rounding = pc.abs(contracted - billed) - _of("ContractedUnitPrice") * QUANTITY_ERROR
    consumed = COMMITTED & ~PURCHASE
    return {"BilledCost is ContractedCost but for rounding": ~consumed & (rounding >= 2 * smallest_amount())}


COST_AND_USAGE_RULES: Final[Rules] = {
    **_cost_rules(),
    **_together(("ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "SkuPriceDetails"), "SkuPriceId"),
    **_together(["PricingUnit"], "PricingQuantity"),
    "PricingQuantity is stated exactly where something is": _has("PricingQuantity") != (USAGE | PURCHASE),
    **_together(["ConsumedUnit"], "ConsumedQuantity"),
    "ConsumedQuantity is stated exactly where something is": _has("ConsumedQuantity") != (USAGE & ~UNUSED),
    **_together(
        [*(f"CommitmentDiscount{name}" for name in ("Name", "Category", "Type", "Quantity", "Unit")), "ContractApplied"],
        "CommitmentDiscountId",
    ),
    **_together(("AllocatedResourceId", "AllocatedResourceName"), "AllocatedMethodId"),
    "AllocatedTags is null where nothing is split": _has("AllocatedTags") & ~_has("AllocatedMethodId"),
    "CommitmentDiscountStatus is stated exactly for usage under a commitment":
        _has("CommitmentDiscountStatus") != (COMMITTED & USAGE),
    "PricingCategory is Committed exactly there": _is("PricingCategory", "Committed") != (COMMITTED & USAGE),
    "a Purchase has the commitment as its ResourceId":
        PURCHASE & ~pc.coalesce(_of("ResourceId") == _of("CommitmentDiscountId"), pa.scalar(False)),
    "ChargePeriodStart is before ChargePeriodEnd": _of("ChargePeriodStart") >= _of("ChargePeriodEnd"),
}  # fmt: skip

BILLING_PERIOD_RULES: Final[Rules] = {
    "created before it was updated": _of("BillingPeriodCreated") > _of("BillingPeriodLastUpdated"),
}

CONTRACT_COMMITMENT_RULES: Final[Rules] = {
    "its period starts before it ends": _of("ContractCommitmentPeriodStart") >= _of("ContractCommitmentPeriodEnd"),
    "it was created before it was updated": _of("ContractCommitmentCreated") > _of("ContractCommitmentLastUpdated"),
    "quantity or cost is stated": ~_has("ContractCommitmentQuantity") & ~_has("ContractCommitmentCost"),
    "Unit is null exactly where Quantity is": _has("ContractCommitmentUnit") != _has("ContractCommitmentQuantity"),
    "a Discount has a percentage":
        _is("ContractCommitmentBenefitCategory", "Discount") & ~_has("ContractCommitmentDiscountPercentage"),
    "the percentage lies between 0 and 1":
        (_of("ContractCommitmentDiscountPercentage") < ZERO) | (_of("ContractCommitmentDiscountPercentage") > Decimal(1)),
    "all upfront is paid one time":
        _is("ContractCommitmentPaymentModel", "All Upfront") & ~_is("ContractCommitmentPaymentInterval", "One-Time"),
    "the currency is stated": ~_has("BillingCurrency"),
}  # fmt: skip


class Conformance:
    """Conformance check of a month: rows as they are written, sums at the end.

    period: the billing period; closed: the windows closed before it, the only ones that corrections may be of.
    """

    def __init__(self, period: Interval, closed: Sequence[Interval]) -> None:
        self.period = period
        self.closed = list(closed)
        self.violations: list[str] = []
        self._by_line: dict[str, Decimal] = {}
        self._effective: dict[str, Decimal] = {}
        self._referred: set[str] = set()
        self._detail: dict[str, tuple[str, Decimal]] = {}

    def cost_and_usage(self, rows: pa.Table) -> None:
        """Check a batch of Cost and Usage and add it to the sums."""
        rules = {**COST_AND_USAGE_RULES, **_rounding_rules(), **self._period_rules()}
        if not self._check("Cost and Usage", rows, COST_AND_USAGE, rules):
            return
        self._referred |= set(pc.unique(rows.column("CommitmentDiscountId")).to_pylist()) - {None}
        for cost, sums in (("BilledCost", self._by_line), ("EffectiveCost", self._effective)):
            grouped = rows.group_by("InvoiceDetailId").aggregate([(cost, "sum")])
            for row in grouped.to_pylist():
                sums[row["InvoiceDetailId"]] = sums.get(row["InvoiceDetailId"], ZERO) + row[f"{cost}_sum"]

    def invoice_detail(self, rows: pa.Table) -> None:
        """Check a batch of Invoice Detail and store its lines."""
        if not self._check("Invoice Detail", rows, INVOICE_DETAIL, {}):
            return
        for row in rows.select(["InvoiceDetailId", "InvoiceId", "BilledCost"]).to_pylist():
            name = row["InvoiceDetailId"]
            if name in self._detail:
                self.violations.append(f"Invoice Detail: InvoiceDetailId {name} is there twice")
            self._detail[name] = (row["InvoiceId"], row["BilledCost"])

    def billing_period(self, rows: pa.Table) -> None:
        self._check("Billing Period", rows, BILLING_PERIOD, BILLING_PERIOD_RULES)

    def contract_commitment(self, rows: pa.Table) -> None:
        """Check the rows of Contract Commitment: every commitment in Cost and Usage is present exactly once."""
        name = "Contract Commitment"
        if not self._check(name, rows, CONTRACT_COMMITMENT, CONTRACT_COMMITMENT_RULES):
            return
        known = rows.column("ContractCommitmentId").to_pylist()
        if len(set(known)) < len(known):
            self.violations.append(f"{name}: ContractCommitmentId is there twice")
        self.violations += [
            f"{name}: {missing} is referred to and not there" for missing in sorted(self._referred - set(known))
        ]

    def finish(self, totals: Mapping[str, Decimal]) -> None:
        """Compare all sums with the invoices (number -> total).  Raises ConformanceError."""
        for name in sorted(self._by_line.keys() | self._detail.keys()):
            invoice, stated = self._detail.get(name, ("", None))
            if self._by_line.get(name, ZERO if stated == ZERO else None) != stated:
                self.violations.append(f"sum of BilledCost of {name} is {self._by_line.get(name)}, not {stated}")
        self.violations += [
            f"used and unused EffectiveCost of {name} is {self._effective[name]}, the purchase {amount}"
            for name, amount in sorted(self._by_line.items())
            if self._effective[name] != amount
        ]
        sums = dict.fromkeys(totals, ZERO)
        for name, amount in self._by_line.items():
            invoice = self._detail.get(name, ("", ZERO))[0]
            sums[invoice] = sums.get(invoice, ZERO) + amount
        for invoice in sorted(sums):
            if sums[invoice] != totals.get(invoice):
                self.violations.append(
                    f"sum of BilledCost of InvoiceId {invoice} is {sums[invoice]}, the invoice {totals.get(invoice)}"
                )
        if self.violations:
            raise ConformanceError(self.violations)

    def _check(self, name: str, rows: pa.Table, schema: pa.Schema, rules: Rules) -> bool:
        """Check columns and types, nulls, closed lists and rules; return False for wrong columns, before other checks."""
        import pyarrow.dataset as ds  # imports pandas, which other commands and pages do not need

        wrong = [field.name for field in schema if field.name not in rows.schema.names]
        wrong += [field.name for field in schema if field.name not in wrong and rows.field(field.name).type != field.type]
        if wrong:
            self.violations.append(f"{name}: columns {', '.join(wrong)} are missing or of another type")
            return False
        nulls = {f"{field.name} must not be null": ~_has(field.name) for field in schema if not field.nullable}
        lists = {
            f"{field.name} is none of its closed list": _has(field.name) & ~_of(field.name).isin(sorted(allowed))
            for field in schema if (allowed := CLOSED_LISTS.get(field.name))
        }  # fmt: skip
        broken = ds.dataset(rows).to_table(columns={**nulls, **lists, **rules})
        for rule, column in zip(broken.column_names, broken.columns, strict=True):
            if count := pc.sum(column).as_py():
                self.violations.append(f"{name}: {rule} ({count} rows)")
        return True

    def _period_rules(self) -> Rules:
        start, end, correction = _of("ChargePeriodStart"), _of("ChargePeriodEnd"), _has("ChargeClass")
        late = pc.scalar(False)
        for window in self.closed:
            late |= (start >= window.start) & (end <= window.end)
        current = (start >= self.period.start) & (end <= self.period.end)
        billed = (_of("BillingPeriodStart") == self.period.start) & (_of("BillingPeriodEnd") == self.period.end)
        return {
            "a Correction lies in a closed charge period": correction & ~late,
            "what is no Correction lies in the billing period": ~correction & ~current,
            "every row is of this billing period": ~billed,
        }
