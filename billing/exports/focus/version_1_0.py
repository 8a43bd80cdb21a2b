"""PURE: Cost and Usage as FOCUS 1.0, for tools that know no later version, such as the public validator.

Version 1.0 has one data set of 43 columns. They are columns of 1.4 under the same name, except RENAMED; further columns of
1.4 are left out, and custom columns stay. The mapping is in docs/focus.md too.
"""

from typing import Final

import pyarrow as pa

from billing.exports.focus.columns import COST_AND_USAGE, TEXT

COLUMNS: Final = (
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName",
    "CommitmentDiscountStatus", "CommitmentDiscountType", "ConsumedQuantity", "ConsumedUnit", "ContractedCost",
    "ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId",
    "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId",
    "SubAccountName", "Tags",
)  # fmt: skip
RENAMED: Final = {"ProviderName": "ServiceProviderName", "PublisherName": "ServiceProviderName"}
"""Columns of 1.0 with another name in 1.4: the platform both provides and produces the service."""


_known: Final = {field.name: field for field in COST_AND_USAGE}
_standard: Final = [
    _known[source].with_name(name) if (source := RENAMED.get(name, name)) in _known else pa.field(name, TEXT)
    for name in COLUMNS
]
COST_AND_USAGE_1_0: Final = pa.schema(
    [*_standard, *(field for field in COST_AND_USAGE if field.name.startswith("x_"))], metadata={"FocusVersion": "1.0"}
)


def as_1_0(rows: pa.Table) -> pa.Table:
    """Convert rows of 1.4 to the columns of 1.0; a column that 1.4 rows do not have is null."""
    names = set(rows.schema.names)
    columns = [
        rows.column(source) if (source := RENAMED.get(field.name, field.name)) in names else pa.nulls(len(rows), field.type)
        for field in COST_AND_USAGE_1_0
    ]
    return pa.Table.from_arrays(columns, schema=COST_AND_USAGE_1_0)
