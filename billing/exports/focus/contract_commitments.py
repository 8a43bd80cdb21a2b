"""PURE: rows of Contract Commitment: the terms behind what Cost and Usage bills as purchased, used and unused.

Quantity and cost are those of one fulfilment interval, a month. A commitment without an end runs from month to month: its
period ends with the month that is exported. Source: FOCUS 1.4, data set Contract Commitment.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from billing.exports.focus.billing_records import whole_second
from billing.exports.focus.columns import CONTRACT_COMMITMENT
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
    """A commitment with what is known about it: when it was stored, what follows it, and the list price beside it."""

    commitment: Commitment
    created: datetime
    followed_at: datetime | None
    list_price: Decimal | None


@dataclass(frozen=True, slots=True)
class Issue:
    """Of which month the rows are, and who bills in which currency; `zone` is the billing zone."""

    period: Interval
    zone: str
    currency: str
    issuer: str


def commitment_rows(terms: Iterable[Terms], issue: Issue) -> pa.Table:
    """Contract Commitment: one row a commitment."""
    return pa.Table.from_pylist([_row(item, issue) for item in terms], schema=CONTRACT_COMMITMENT)


def _row(item: Terms, issue: Issue) -> dict[str, Any]:
    one = item.commitment
    start, end = one.valid_from, one.valid_until or issue.period.end
    discount = _discount(one.price, item.list_price)
    return {
        "BillingCurrency": issue.currency,
        "ContractCommitmentApplicability": _applicability(one),
        "ContractCommitmentBenefitCategory": "Other" if discount is None else "Discount",
        "ContractCommitmentCategory": "Usage",
        "ContractCommitmentCost": round_amount(Fraction(one.gpu_hours) * Fraction(one.price)),
        "ContractCommitmentCreated": whole_second(item.created),
        "ContractCommitmentDescription": _description(one),
        "ContractCommitmentDiscountPercentage": discount,
        "ContractCommitmentDurationType": duration_type(one, issue.zone),
        "ContractCommitmentFulfillmentInterval": "Monthly",
        "ContractCommitmentId": one.name,
        "ContractCommitmentLastUpdated": whole_second(item.followed_at or item.created),
        "ContractCommitmentLifecycleStatus": _status(item, issue.period.end),
        "ContractCommitmentModel": "Discontinuous",
        "ContractCommitmentOfferCategory": "Negotiated",
        "ContractCommitmentPaymentInterval": "Monthly",
        "ContractCommitmentPaymentModel": "No Upfront",
        "ContractCommitmentPeriodEnd": whole_second(end),
        "ContractCommitmentPeriodStart": whole_second(start),
        "ContractCommitmentQuantity": one.gpu_hours,
        "ContractCommitmentType": COMMITMENT_TYPE,
        "ContractCommitmentUnit": GPU_HOURS,
        "ContractId": one.name,
        "ContractPeriodEnd": whole_second(end),
        "ContractPeriodStart": whole_second(start),
        "InvoiceIssuerName": issue.issuer,
        "ServiceProviderName": issue.issuer,
    }


def _applicability(one: Commitment) -> str:
    rules = (("BillingAccountId", one.team), ("SkuId", one.accelerator))
    inclusions = [{"Dimension": name, "Operator": "In", "Values": [value]} for name, value in rules]
    return json.dumps(
        {"InclusionOperator": "And", "Inclusions": inclusions}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


def _description(one: Commitment) -> str:
    hours = plain_text(one.gpu_hours)
    return f"{hours} GPU-hours of {one.accelerator} a month at {price_text(one.price)}, used or not"


def _discount(price: Decimal, list_price: Decimal | None) -> Decimal | None:
    """The part of the list price that is saved; None where the list is unknown or not above the commitment's price."""
    if list_price is None or list_price <= price:
        return None
    return round_to(1 - Fraction(price) / Fraction(list_price), RATIO_PLACES)


def duration_type(one: Commitment, zone: str) -> str:
    """The agreed length in whole local years, months or else days; from month to month where no end is agreed."""
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
    """As of the end of the exported month."""
    until = item.commitment.valid_until
    if until is None or until > at:
        return "Active"
    return "Expired" if item.followed_at is None else "Superseded"
