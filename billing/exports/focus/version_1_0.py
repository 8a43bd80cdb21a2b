"""PURE: Cost and Usage as FOCUS 1.0, for tools that know no later version; the public validator is one.

Version 1.0 has one data set of 43 columns. They are columns of 1.4 under the same name, but those of RENAMED; what 1.4 has
beyond is left out, and our own columns stay. The mapping is in docs/focus.md too.
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
"""Who makes the service available also produces it: the platform."""


_known: Final = {field.name: field for field in COST_AND_USAGE}
_standard: Final = [
    _known[source].with_name(name) if (source := RENAMED.get(name, name)) in _known else pa.field(name, TEXT)
    for name in COLUMNS
]
COST_AND_USAGE_1_0: Final = pa.schema(
    [*_standard, *(field for field in COST_AND_USAGE if field.name.startswith("x_"))], metadata={"FocusVersion": "1.0"}
)


def as_1_0(rows: pa.Table) -> pa.Table:
    """Rows of 1.4 with the columns of 1.0; a column that 1.4 rows do not have is null."""
    names = set(rows.schema.names)
    columns = [
        rows.column(source) if (source := RENAMED.get(field.name, field.name)) in names else pa.nulls(len(rows), field.type)
        for field in COST_AND_USAGE_1_0
    ]
    return pa.Table.from_arrays(columns, schema=COST_AND_USAGE_1_0)
