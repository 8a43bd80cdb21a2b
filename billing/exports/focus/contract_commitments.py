"""PURE: rows of Contract Commitment: the terms of commitments that Cost and Usage bills as purchased, used and unused.

Quantity and cost are those of one fulfilment interval, a month. A commitment without an end runs from month to month: its
period ends with the exported month. Source: FOCUS 1.4, data set Contract Commitment.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from billing.exports.focus.billing_records import whole_second
from billing.exports.focus.columns import AMOUNT, INSTANT, QUANTITY, TEXT, schema_of
from billing.exports.focus.cost_and_usage import COMMITMENT_TYPE
from metering.intervals import Interval
from pricing.commitments import Commitment
from pricing.money import round_amount, round_to
from pricing.number_text import plain_text, price_text
from pricing.rate_card import GPU_HOURS

MONTHS_A_YEAR = 12
RATIO_PLACES = 6


@dataclass(frozen=True, slots=True)
class Terms:
    """Commitment with the time of its storage, the time of its successor, and the list price."""

    commitment: Commitment
    created: datetime
    followed_at: datetime | None
    list_price: Decimal | None


@dataclass(frozen=True, slots=True)
class Issue:
    """Exported month, with issuer and currency; `zone` is the billing zone."""

    period: Interval
    zone: str
    currency: str
    issuer: str


def commitment_rows(terms: Iterable[Terms], issue: Issue) -> pa.Table:
    """Build the rows of Contract Commitment, one per commitment."""
    rows = [{name: source(item, issue) for name, (_, _, source) in COLUMNS.items()} for item in terms]
    return pa.Table.from_pylist(rows, schema=CONTRACT_COMMITMENT)


def _applicability(one: Commitment) -> str:
    rules = (("BillingAccountId", one.team), ("SkuId", one.accelerator))
    inclusions = [{"Dimension": name, "Operator": "In", "Values": [value]} for name, value in rules]
    return json.dumps(
        {"InclusionOperator": "And", "Inclusions": inclusions}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


def _description(one: Commitment) -> str:
    hours = plain_text(one.gpu_hours)
    return f"{hours} GPU-hours of {one.accelerator} a month at {price_text(one.price)}, used or not"


def _monthly_cost(one: Commitment) -> Decimal:
    return round_amount(Fraction(one.gpu_hours) * Fraction(one.price))


def _end(item: Terms, issue: Issue) -> datetime:
    return item.commitment.valid_until or issue.period.end


def _discount(item: Terms) -> Decimal | None:
    """Return the saved part of the list price; None where the list is unknown or not above the commitment's price."""
    price, list_price = item.commitment.price, item.list_price
    if list_price is None or list_price <= price:
        return None
    return round_to(1 - Fraction(price) / Fraction(list_price), RATIO_PLACES)


def duration_type(one: Commitment, zone: str) -> str:
    """Return the agreed length in whole local years, months or else days; a month where no end is agreed."""
    if one.valid_until is None:
        return "1 Month"
    start, end = (instant.astimezone(ZoneInfo(zone)) for instant in (one.valid_from, one.valid_until))
    months = (end.year - start.year) * MONTHS_A_YEAR + end.month - start.month
    if (start.day, start.time()) != (end.day, end.time()) or not months:
        return _counted(max((end.date() - start.date()).days, 1), "Day")
    return _counted(months, "Month") if months % MONTHS_A_YEAR else _counted(months // MONTHS_A_YEAR, "Year")


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _status(item: Terms, at: datetime) -> str:
    """Return the status at the end of the exported month."""
    until = item.commitment.valid_until
    if until is None or until > at:
        return "Active"
    return "Expired" if item.followed_at is None else "Superseded"


Source = Callable[[Terms, Issue], Any]
COLUMNS: Final[dict[str, tuple[pa.DataType, bool, Source]]] = {
    "BillingCurrency": (TEXT, True, lambda _, issue: issue.currency),
    "ContractCommitmentApplicability": (TEXT, False, lambda item, _: _applicability(item.commitment)),
    "ContractCommitmentBenefitCategory": (TEXT, False, lambda item, _: "Other" if _discount(item) is None else "Discount"),
    "ContractCommitmentCategory": (TEXT, False, lambda _, __: "Usage"),
    "ContractCommitmentCost": (AMOUNT, True, lambda item, _: _monthly_cost(item.commitment)),
    "ContractCommitmentCreated": (INSTANT, False, lambda item, _: whole_second(item.created)),
    "ContractCommitmentDescription": (TEXT, True, lambda item, _: _description(item.commitment)),
    "ContractCommitmentDiscountPercentage": (QUANTITY, True, lambda item, _: _discount(item)),
    "ContractCommitmentDurationType": (TEXT, False, lambda item, issue: duration_type(item.commitment, issue.zone)),
    "ContractCommitmentFulfillmentInterval": (TEXT, False, lambda _, __: "Monthly"),
    "ContractCommitmentId": (TEXT, False, lambda item, _: item.commitment.name),
    "ContractCommitmentLastUpdated": (INSTANT, False, lambda item, _: whole_second(item.followed_at or item.created)),
    "ContractCommitmentLifecycleStatus": (TEXT, False, lambda item, issue: _status(item, issue.period.end)),
    "ContractCommitmentModel": (TEXT, False, lambda _, __: "Discontinuous"),
    "ContractCommitmentOfferCategory": (TEXT, False, lambda _, __: "Negotiated"),
    "ContractCommitmentPaymentInterval": (TEXT, False, lambda _, __: "Monthly"),
    "ContractCommitmentPaymentModel": (TEXT, False, lambda _, __: "No Upfront"),
    "ContractCommitmentPeriodEnd": (INSTANT, False, lambda item, issue: whole_second(_end(item, issue))),
    "ContractCommitmentPeriodStart": (INSTANT, False, lambda item, _: whole_second(item.commitment.valid_from)),
    "ContractCommitmentQuantity": (QUANTITY, True, lambda item, _: item.commitment.gpu_hours),
    "ContractCommitmentType": (TEXT, False, lambda _, __: COMMITMENT_TYPE),
    "ContractCommitmentUnit": (TEXT, True, lambda _, __: GPU_HOURS),
    "ContractId": (TEXT, False, lambda item, _: item.commitment.name),
    "ContractPeriodEnd": (INSTANT, False, lambda item, issue: whole_second(_end(item, issue))),
    "ContractPeriodStart": (INSTANT, False, lambda item, _: whole_second(item.commitment.valid_from)),
    "InvoiceIssuerName": (TEXT, False, lambda _, issue: issue.issuer),
    "ServiceProviderName": (TEXT, False, lambda _, issue: issue.issuer),
}
"""Columns: type, nullability, and value."""
CONTRACT_COMMITMENT: Final = schema_of(*((name, kind, nullable) for name, (kind, nullable, _) in COLUMNS.items()))
