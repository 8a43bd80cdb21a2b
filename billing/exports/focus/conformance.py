"""PURE: the rules of FOCUS 1.4 that our files must keep; an export that breaks one is refused, not delivered.

Own checks, since public validators lag behind the specification. Rows are checked batch by batch, column by column;
sums are kept across batches. Each violation names the rule, the column and how many rows break it.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from billing.exports.focus.columns import BILLING_PERIOD, CLOSED_LISTS, CONTRACT_COMMITMENT, COST_AND_USAGE, INVOICE_DETAIL
from metering.intervals import Interval
from metering.messages import Message, UserError

ZERO = Decimal("0.00")
CENT = Decimal("0.02")
QUANTITY_ERROR = Decimal("0.000002")
"""A row's part in the rounding of its line (half a cent) and in its split (less than one) stays below 0.02, and its
quantity is off by less than two of the last digit."""
WIDE = pa.decimal128(28, 10)
UNIT_OF = {"PricingQuantity": "PricingUnit", "ConsumedQuantity": "ConsumedUnit"}


class ConformanceError(UserError):
    """Rows that FOCUS forbids."""

    code = "focus_conformance"

    def __init__(self, violations: Sequence[str]) -> None:
        shown = "; ".join(violations[:10])
        super().__init__(Message(
            "%(n)s rules of FOCUS 1.4 are broken: %(violations)s", n=len(violations), violations=shown
        ))
        self.violations = list(violations)


class Conformance:
    """Checks a month: rows as they are written, sums at the end.

    period: the billing period; closed: the windows closed before it, the only ones that may be corrected.
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
        if not self._shape("Cost and Usage", rows, COST_AND_USAGE):
            return
        for rule, broken in (
            *_costs(rows), *_prices(rows), *_categories(rows), *self._periods(rows),
        ):  # fmt: skip
            self._count(f"Cost and Usage: {rule}", broken)
        self._referred |= set(pc.unique(rows.column("CommitmentDiscountId")).to_pylist()) - {None}
        for name, amount in _sums(rows, "BilledCost").items():
            self._by_line[name] = self._by_line.get(name, ZERO) + amount
        for name, amount in _sums(rows, "EffectiveCost").items():
            self._effective[name] = self._effective.get(name, ZERO) + amount

    def invoice_detail(self, rows: pa.Table) -> None:
        """Check a batch of Invoice Detail and remember its lines."""
        if not self._shape("Invoice Detail", rows, INVOICE_DETAIL):
            return
        columns = (rows.column(name).to_pylist() for name in ("InvoiceDetailId", "InvoiceId", "BilledCost"))
        for name, invoice, amount in zip(*columns, strict=True):
            if name in self._detail:
                self.violations.append(f"Invoice Detail: InvoiceDetailId {name} is there twice")
            self._detail[name] = (invoice, amount)

    def billing_period(self, rows: pa.Table) -> None:
        """Check the rows of Billing Period."""
        if self._shape("Billing Period", rows, BILLING_PERIOD):
            created, updated = rows.column("BillingPeriodCreated"), rows.column("BillingPeriodLastUpdated")
            self._count("Billing Period: created before it was updated", pc.greater(created, updated))

    def contract_commitment(self, rows: pa.Table) -> None:
        """Check the rows of Contract Commitment: all that Cost and Usage refers to are there, each once."""
        name = "Contract Commitment"
        if not self._shape(name, rows, CONTRACT_COMMITMENT):
            return
        for rule, broken in _commitment_rules(rows):
            self._count(f"{name}: {rule}", broken)
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

    def _shape(self, name: str, rows: pa.Table, schema: pa.Schema) -> bool:
        """Columns, types, nulls and closed lists; without the right columns nothing else can be asked."""
        wrong = [field.name for field in schema if field.name not in rows.schema.names]
        wrong += [field.name for field in schema if field.name not in wrong and rows.field(field.name).type != field.type]
        if wrong:
            self.violations.append(f"{name}: columns {', '.join(wrong)} are missing or of another type")
            return False
        for field in schema:
            column = rows.column(field.name)
            if not field.nullable:
                self._count(f"{name}: {field.name} must not be null", pc.is_null(column))
            if field.name in CLOSED_LISTS:
                allowed = pa.array(sorted(CLOSED_LISTS[field.name]))
                strange = pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=allowed)))
                self._count(f"{name}: {field.name} is none of its closed list", strange)
        return True

    def _periods(self, rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
        start, end = rows.column("ChargePeriodStart"), rows.column("ChargePeriodEnd")
        correction = pc.is_valid(rows.column("ChargeClass"))
        late = pa.chunked_array([pa.array([False] * len(rows))])
        for window in self.closed:
            late = pc.or_(late, _within(start, end, window))
        current = _within(start, end, self.period)
        return [
            ("ChargePeriodStart is before ChargePeriodEnd", pc.greater_equal(start, end)),
            ("a Correction lies in a closed charge period", pc.and_(correction, pc.invert(late))),
            ("what is no Correction lies in the billing period", pc.and_(pc.invert(correction), pc.invert(current))),
            ("every row is of this billing period", pc.invert(_same_period(rows, self.period))),
        ]

    def _count(self, rule: str, broken: pa.ChunkedArray) -> None:
        count = pc.sum(broken).as_py() or 0
        if count:
            self.violations.append(f"{rule} ({count} rows)")


def _costs(rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    billed, quantity, effective = (rows.column(name) for name in ("BilledCost", "PricingQuantity", "EffectiveCost"))
    committed, bought = pc.is_valid(rows.column("CommitmentDiscountId")), _is(rows, "ChargeCategory", "Purchase")
    plain = pc.invert(committed)
    adjusted = pc.and_(plain, pc.invert(_is(rows, "ChargeCategory", "Usage")))
    consumed = pc.and_(committed, pc.invert(bought))
    found = [
        ("EffectiveCost = BilledCost without a commitment", pc.and_(plain, pc.not_equal(effective, billed))),
        ("the purchase of a commitment has no EffectiveCost", pc.and_(bought, pc.not_equal(effective, ZERO))),
        ("what a commitment pays for has no BilledCost", pc.and_(consumed, pc.not_equal(billed, ZERO))),
    ]
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        product = pc.multiply(rows.column(price), quantity)
        found.append((f"{cost} = {price} x PricingQuantity", pc.not_equal(rows.column(cost), product)))
        same = pc.equal(rows.column(cost), billed.cast(rows.column(cost).type))
        found.append((f"{cost} = BilledCost without a price", pc.and_(adjusted, pc.invert(same))))
    contracted, exact_billed = (column.cast(WIDE) for column in (rows.column("ContractedCost"), billed))
    allowed = pc.multiply(rows.column("ContractedUnitPrice"), pa.scalar(QUANTITY_ERROR))
    excess = pc.subtract(pc.abs(pc.subtract(contracted, exact_billed)), allowed)
    beyond = pc.and_(pc.invert(consumed), pc.greater_equal(excess, CENT))
    return [*found, ("BilledCost is ContractedCost but for rounding", beyond)]


def _prices(rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    without = pc.is_null(rows.column("SkuPriceId"))
    usage, unused = _is(rows, "ChargeCategory", "Usage"), _is(rows, "CommitmentDiscountStatus", "Unused")
    stated = {
        "PricingQuantity": pc.or_(usage, _is(rows, "ChargeCategory", "Purchase")),
        "ConsumedQuantity": pc.and_(usage, pc.invert(unused)),
    }
    found = [
        (f"{name} is null exactly where SkuPriceId is", pc.xor(without, pc.is_null(rows.column(name))))
        for name in ("ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "SkuPriceDetails")
    ]
    for quantity, unit in UNIT_OF.items():
        nothing = pc.is_null(rows.column(quantity))
        found.append((f"{unit} is null exactly where {quantity} is", pc.xor(nothing, pc.is_null(rows.column(unit)))))
        found.append((f"{quantity} is stated exactly where something is", pc.equal(stated[quantity], nothing)))
    return found + _commitments(rows, usage)


def _commitments(rows: pa.Table, usage: pa.ChunkedArray) -> list[tuple[str, pa.ChunkedArray]]:
    """The columns of a commitment stand and fall together; only usage is used or unused, and priced as committed."""
    committed = pc.is_valid(rows.column("CommitmentDiscountId"))
    names = ("Name", "Category", "Type", "Quantity", "Unit")
    columns = [*(f"CommitmentDiscount{name}" for name in names), "ContractApplied"]
    found = [
        (f"{name} is null exactly where CommitmentDiscountId is", pc.xor(committed, pc.is_valid(rows.column(name))))
        for name in columns
    ]
    allocated = pc.is_valid(rows.column("AllocatedMethodId"))
    found += [
        (f"{name} is null exactly where AllocatedMethodId is", pc.xor(allocated, pc.is_valid(rows.column(name))))
        for name in ("AllocatedResourceId", "AllocatedResourceName")
    ]
    status = pc.is_valid(rows.column("CommitmentDiscountStatus"))
    consumed = pc.and_(committed, usage)
    purchase = _is(rows, "ChargeCategory", "Purchase")
    same = pc.fill_null(pc.equal(rows.column("ResourceId"), rows.column("CommitmentDiscountId")), False)
    return [
        *found,
        ("CommitmentDiscountStatus is stated exactly for usage under a commitment", pc.xor(status, consumed)),
        ("PricingCategory is Committed exactly there", pc.xor(_is(rows, "PricingCategory", "Committed"), consumed)),
        ("a Purchase has the commitment as its ResourceId", pc.and_(purchase, pc.invert(same))),
    ]


def _commitment_rules(rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    column = {name: rows.column(f"ContractCommitment{name}") for name in (
        "PeriodStart", "PeriodEnd", "Quantity", "Unit", "Cost", "DiscountPercentage", "Created", "LastUpdated",
    )}  # fmt: skip
    discount, percentage = _is(rows, "ContractCommitmentBenefitCategory", "Discount"), column["DiscountPercentage"]
    outside = pc.or_(pc.less(percentage, ZERO), pc.greater(percentage, Decimal(1)))
    upfront = _is(rows, "ContractCommitmentPaymentModel", "All Upfront")
    at_once = _is(rows, "ContractCommitmentPaymentInterval", "One-Time")
    return [
        ("its period starts before it ends", pc.greater_equal(column["PeriodStart"], column["PeriodEnd"])),
        ("it was created before it was updated", pc.greater(column["Created"], column["LastUpdated"])),
        ("quantity or cost is stated", pc.and_(pc.is_null(column["Quantity"]), pc.is_null(column["Cost"]))),
        ("Unit is null exactly where Quantity is", pc.xor(pc.is_null(column["Quantity"]), pc.is_null(column["Unit"]))),
        ("a Discount has a percentage", pc.and_(discount, pc.is_null(percentage))),
        ("the percentage lies between 0 and 1", pc.fill_null(outside, False)),
        ("all upfront is paid one time", pc.and_(upfront, pc.invert(at_once))),
        ("the currency is stated", pc.is_null(rows.column("BillingCurrency"))),
    ]


def _categories(rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    billed = rows.column("BilledCost")
    regular = pc.is_null(rows.column("ChargeClass"))  # a reversal keeps its category and turns its sign
    credit, adjustment = (pc.and_(regular, _is(rows, "ChargeCategory", name)) for name in ("Credit", "Adjustment"))
    return [
        ("a Credit is not positive", pc.and_(credit, pc.greater(billed, ZERO))),
        ("a penalty is not negative", pc.and_(adjustment, pc.less(billed, ZERO))),
    ]


def _is(rows: pa.Table, column: str, value: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(rows.column(column), value), False)


def _within(start: pa.ChunkedArray, end: pa.ChunkedArray, window: Interval) -> pa.ChunkedArray:
    kind = start.type
    low, high = (pa.scalar(instant, type=kind) for instant in (window.start, window.end))
    return pc.and_(pc.greater_equal(start, low), pc.less_equal(end, high))


def _same_period(rows: pa.Table, period: Interval) -> pa.ChunkedArray:
    start, end = rows.column("BillingPeriodStart"), rows.column("BillingPeriodEnd")
    low, high = (pa.scalar(instant, type=start.type) for instant in (period.start, period.end))
    return pc.and_(pc.equal(start, low), pc.equal(end, high))


def _sums(rows: pa.Table, cost: str) -> dict[str, Decimal]:
    by = "InvoiceDetailId"
    grouped = rows.group_by(by).aggregate([(cost, "sum")])
    return dict(zip(grouped.column(by).to_pylist(), grouped.column(f"{cost}_sum").to_pylist(), strict=True))
