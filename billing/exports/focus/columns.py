"""PURE: columns of three data sets, their types and nullability, and the closed lists.

Decimals have fixed scales: amounts on an invoice 2, quantities 6 as on the invoice, prices 4 as in the price list, and
their product 10, so that list cost = price x quantity holds exactly. Custom columns begin with `x_`.
Source: FOCUS 1.4 as described in docs/focus.md.
"""

from typing import Final

import pyarrow as pa

FOCUS_VERSION: Final = "1.4"
AMOUNT: Final = pa.decimal128(38, 2)
PRODUCT: Final = pa.decimal128(38, 10)
QUANTITY: Final = pa.decimal128(19, 6)
PRICE: Final = pa.decimal128(18, 4)
RATIO: Final = pa.decimal128(21, 20)
INSTANT: Final = pa.timestamp("ms", tz="UTC")
TEXT: Final = pa.string()


def schema_of(*columns: tuple[str, pa.DataType, bool]) -> pa.Schema:
    """Build a schema from (name, type, nullable), with the FOCUS version as metadata of the file."""
    return pa.schema(
        [pa.field(name, kind, nullable=nullable) for name, kind, nullable in columns],
        metadata={"FocusVersion": FOCUS_VERSION},
    )


COST_AND_USAGE: Final = schema_of(
    ("BilledCost", AMOUNT, False),
    ("EffectiveCost", AMOUNT, False),
    ("ListCost", PRODUCT, False),
    ("ContractedCost", PRODUCT, False),
    ("BillingAccountId", TEXT, False),
    ("BillingAccountName", TEXT, True),
    ("BillingAccountType", TEXT, True),
    ("BillingCurrency", TEXT, False),
    ("BillingPeriodStart", INSTANT, False),
    ("BillingPeriodEnd", INSTANT, False),
    ("ChargePeriodStart", INSTANT, False),
    ("ChargePeriodEnd", INSTANT, False),
    ("ChargeCategory", TEXT, False),
    ("ChargeClass", TEXT, True),
    ("ChargeDescription", TEXT, True),
    ("ChargeFrequency", TEXT, True),
    ("PricingQuantity", QUANTITY, True),
    ("PricingUnit", TEXT, True),
    ("PricingCategory", TEXT, True),
    ("ConsumedQuantity", QUANTITY, True),
    ("ConsumedUnit", TEXT, True),
    ("ListUnitPrice", PRICE, True),
    ("ContractedUnitPrice", PRICE, True),
    ("ServiceCategory", TEXT, False),
    ("ServiceSubcategory", TEXT, True),
    ("ServiceName", TEXT, False),
    ("ServiceProviderName", TEXT, False),
    ("HostProviderName", TEXT, False),
    ("InvoiceIssuerName", TEXT, False),
    ("InvoiceId", TEXT, False),
    ("InvoiceDetailId", TEXT, False),
    ("SkuId", TEXT, True),
    ("SkuMeter", TEXT, True),
    ("SkuPriceId", TEXT, True),
    ("SkuPriceDetails", TEXT, True),
    ("SubAccountId", TEXT, True),
    ("SubAccountName", TEXT, True),
    ("SubAccountType", TEXT, True),
    ("ResourceId", TEXT, True),
    ("ResourceName", TEXT, True),
    ("ResourceType", TEXT, True),
    ("RegionId", TEXT, True),
    ("RegionName", TEXT, True),
    ("Tags", TEXT, True),
    ("CommitmentDiscountId", TEXT, True),
    ("CommitmentDiscountName", TEXT, True),
    ("CommitmentDiscountCategory", TEXT, True),
    ("CommitmentDiscountType", TEXT, True),
    ("CommitmentDiscountStatus", TEXT, True),
    ("CommitmentDiscountQuantity", QUANTITY, True),
    ("CommitmentDiscountUnit", TEXT, True),
    ("ContractApplied", TEXT, True),
    ("AllocatedMethodId", TEXT, True),
    ("AllocatedMethodDetails", TEXT, True),
    ("AllocatedResourceId", TEXT, True),
    ("AllocatedResourceName", TEXT, True),
    ("AllocatedTags", TEXT, True),
    ("x_PriceVersion", TEXT, False),
    ("x_ChargeMonth", TEXT, False),
    ("x_TokenDirection", TEXT, True),
    ("x_TokenCacheAction", TEXT, True),
    ("x_ModelId", TEXT, True),
    ("x_PolicyVersion", TEXT, True),
    ("x_EfficiencyReason", TEXT, True),
    ("x_Mfu", RATIO, True),
    ("x_Hfu", RATIO, True),
    ("x_Coverage", RATIO, True),
    ("x_EnergyKwh", QUANTITY, True),
    ("x_CarbonKg", QUANTITY, True),
)

INVOICE_DETAIL: Final = schema_of(
    ("BilledCost", AMOUNT, False),
    ("BillingAccountId", TEXT, False),
    ("BillingCurrency", TEXT, False),
    ("BillingPeriodStart", INSTANT, False),
    ("BillingPeriodEnd", INSTANT, False),
    ("ChargeCategory", TEXT, False),
    ("InvoiceDetailId", TEXT, False),
    ("InvoiceDetailDescription", TEXT, False),
    ("InvoiceDetailGrain", TEXT, False),
    ("InvoiceDetailCreated", INSTANT, False),
    ("InvoiceDetailLastUpdated", INSTANT, False),
    ("InvoiceId", TEXT, False),
    ("InvoiceIssueDate", INSTANT, False),
    ("InvoiceIssueStatus", TEXT, False),
    ("InvoiceIssuerName", TEXT, False),
    ("PaymentCurrency", TEXT, False),
    ("PaymentDueDate", INSTANT, False),
    ("PaymentTerms", TEXT, False),
    ("ReferenceInvoiceId", TEXT, False),
)

BILLING_PERIOD: Final = schema_of(
    ("BillingPeriodStart", INSTANT, False),
    ("BillingPeriodEnd", INSTANT, False),
    ("BillingPeriodStatus", TEXT, False),
    ("BillingPeriodCreated", INSTANT, False),
    ("BillingPeriodLastUpdated", INSTANT, False),
    ("InvoiceIssuerName", TEXT, False),
)

CLOSED_LISTS: Final = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {
        "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools",
        "Identity", "Integration", "Internet of Things", "Management and Governance", "Media", "Migration", "Mobile",
        "Multicloud", "Networking", "Other", "Security", "Storage", "Web",
    },
    "InvoiceIssueStatus": {"Open", "Issued", "Voided"},
    "BillingPeriodStatus": {"Open", "Closed"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
    "ContractCommitmentBenefitCategory": {"Discount", "Monetary Pool", "Availability", "Other"},
    "ContractCommitmentCategory": {"Spend", "Usage"},
    "ContractCommitmentFulfillmentInterval": {
        "Hourly", "Daily", "Weekly", "Monthly", "Quarterly", "Semi-Annual", "Annual", "Full Commitment Period",
        "Transactional", "Custom",
    },
    "ContractCommitmentLifecycleStatus": {
        "Proposed", "Pending", "Active", "Exhausted", "Expired", "Canceled", "Superseded",
    },
    "ContractCommitmentModel": {"Continuous", "Discontinuous"},
    "ContractCommitmentOfferCategory": {"Public", "Negotiated"},
    "ContractCommitmentPaymentInterval": {"One-Time", "Monthly", "Quarterly", "Semi-Annual", "Annual", "Custom"},
    "ContractCommitmentPaymentModel": {"No Upfront", "Partial Upfront", "All Upfront"},
}  # fmt: skip
"""Allowed values of FOCUS per column; null is checked by the schema."""
