"""PURE: the lines of one issued document -> rows of Cost and Usage.

What is the same for all rows of a line is stated once and repeated by Arrow; a month may have hundreds of thousands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from billing.invoicing.focus.columns import COST_AND_USAGE
from billing.invoicing.focus.shares import Evidence, Place, Share, is_usage
from metering.allocation import INTERRUPTIONS
from pricing.rate_card import MILLION_TOKENS, SLICE_HOURS

TOKEN_CLASSES = {
    "input": ("Input Tokens", "Input", None),
    "cache_read": ("Cached Input Tokens", "Input", "Read"),
    "cache_creation": ("Cache Write Tokens", "Input", "Write"),
    "output": ("Output Tokens", "Output", None),
}
"""Meter, x_TokenDirection and x_TokenCacheAction; the classes are disjoint, so no token stands on two rows."""
STYLES = {
    "reversal": "Reversed", "rebill": "Billed again", "allowance": "Credit", "withdrawal": "Credit taken back",
}  # fmt: skip
PRICING_UNITS = {MILLION_TOKENS: "1000000 Tokens"}
VARYING = (
    "ChargePeriodStart", "ChargePeriodEnd", "BilledCost", "EffectiveCost", "ListCost", "ContractedCost",
    "PricingQuantity", "ConsumedQuantity", "ResourceId", "ResourceName", "RegionId", "RegionName", "x_EnergyKwh",
    "x_Mfu", "x_Hfu", "x_Coverage",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SplitLine:
    """A line of a document with its parts and, for an adjustment, the evidence of each job."""

    line: Mapping[str, Any]
    shares: Sequence[Share]
    evidence: Mapping[str, Evidence]


def rows_of(document: Mapping[str, Any], split: Sequence[SplitLine]) -> pa.Table:
    """Cost and Usage of one document; grain: line, UTC hour, job or endpoint, site."""
    constant_schema = pa.schema([field for field in COST_AND_USAGE if field.name not in VARYING])
    constants = pa.Table.from_pylist([_constants(document, item.line) for item in split], schema=constant_schema)
    repeated = constants.take(pa.array([i for i, item in enumerate(split) for _ in item.shares], type=pa.int64()))
    rows = [_varying(item, share) for item in split for share in item.shares]
    columns = [
        pa.array([row[VARYING.index(field.name)] for row in rows], type=field.type)
        if field.name in VARYING
        else repeated.column(field.name)
        for field in COST_AND_USAGE
    ]
    return pa.Table.from_arrays(columns, schema=COST_AND_USAGE)


def _varying(item: SplitLine, share: Share) -> tuple[Any, ...]:
    """In the order of VARYING."""
    found = item.evidence.get(share.place.resource)
    place, site = share.place, share.place.site or None
    measured = (None, None, None) if found is None else (found.mfu, found.hfu, found.coverage)
    return (
        share.start, share.end, share.amount, share.amount, share.list_cost, share.list_cost, share.quantity,
        share.consumed, *_resource(item.line, place), site, site, share.energy_kwh, *measured,
    )  # fmt: skip


def _resource(line: Mapping[str, Any], place: Place) -> tuple[str, str]:
    """Id and name: of the model behind a gateway, or of the job (`kind/name`) in its namespace."""
    if of_tokens(line):
        return place.resource, line["sku"]
    return f"{line['cluster']}/{line['namespace']}/{place.resource}", place.resource.partition("/")[2]


def _constants(document: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that does not change from hour to hour."""
    usage = is_usage(line)
    return {
        **billing_facts(document),
        "BillingAccountName": document["recipient"]["name"],
        "BillingAccountType": "Team",
        "ServiceProviderName": document["issuer"]["name"],
        "HostProviderName": document["issuer"]["name"],
        "InvoiceDetailId": detail_id(document, line),
        "ChargeCategory": charge_category(line),
        "ChargeClass": line["charge_class"],
        "ChargeDescription": description(line),
        "ChargeFrequency": "Usage-Based" if usage else "One-Time",
        "x_PriceVersion": line["price_version"],
        "x_ChargeMonth": line["charge_period"],
        "x_PolicyVersion": line["policy"],
        "x_EfficiencyReason": None if line["reason"] in INTERRUPTIONS else line["reason"],
        **(_prices(line) if usage else {}),
        **service(line),
        **_account(line),
        **_tokens(line),
    }


def billing_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Who is invoiced by whom, for which period; the same in every data set."""
    return {
        "BillingAccountId": document["recipient"]["team"],
        "BillingCurrency": document["currency"],
        "BillingPeriodStart": datetime.fromisoformat(document["period"]["start_utc"]),
        "BillingPeriodEnd": datetime.fromisoformat(document["period"]["end_utc"]),
        "InvoiceIssuerName": document["issuer"]["name"],
        "InvoiceId": document["number"],
    }


def detail_id(document: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    """The id of an invoice line, the same in Cost and Usage and in Invoice Detail."""
    return f"{document['number']}-{line['position']:04d}"


def charge_category(line: Mapping[str, Any]) -> str:
    """A reward is a credit awarded after the fact, a penalty an adjustment; what is reversed keeps its category."""
    if is_usage(line):
        return "Usage"
    rewarded = line["kind"] == "credit" or line["unit_price"].startswith("-")
    return "Credit" if rewarded else "Adjustment"


def description(line: Mapping[str, Any]) -> str:
    """What is charged, where, and why: the facts of the line in one sentence."""
    subject = line["consumer"] or f"{line['cluster']}/{line['namespace']}"
    style = line.get("style")
    if line["reason"] in INTERRUPTIONS:
        text = f"Carried by the platform, {line['reason']}, by policy {line['policy']} on {line['sku']} for {subject}"
    elif line["policy"]:
        text = f"Efficiency {line['reason']} by policy {line['policy']} on {line['sku']} for {subject}"
    else:
        meter = TOKEN_CLASSES[line["token_class"]][0] if of_tokens(line) else line["unit"]
        text = f"{meter} of {line['sku']} for {subject}, price version {line['price_version']}"
    if style:
        return f"{STYLES[style]}: {text}, {line['charge_period']}"
    return f"{text}, reported late for {line['charge_period']}" if line["charge_class"] else text


def of_tokens(line: Mapping[str, Any]) -> bool:
    """Whether the line is about tokens: also a credit on such a line."""
    return line["token_class"] is not None


def service(line: Mapping[str, Any]) -> dict[str, Any]:
    """Which service it is, and its SKU."""
    if of_tokens(line):
        meter = TOKEN_CLASSES[line["token_class"]][0]
        names = ("AI and Machine Learning", "Generative AI", "Model Inference", meter, "Endpoint")
    else:
        meter = "Slice Hours" if line["unit"] == SLICE_HOURS else "GPU Hours"
        names = ("Compute", "Other (Compute)", "GPU Training", meter, "Job")
    columns = ("ServiceCategory", "ServiceSubcategory", "ServiceName", "SkuMeter", "ResourceType")
    return {**dict(zip(columns, names, strict=True)), "SkuId": line["sku"]}


def sku_price_id(line: Mapping[str, Any]) -> str:
    """One price of one price list; a resource may have a price of its own on each accelerator."""
    parts = (line["price_version"], line["accelerator"], line["sku"], line["token_class"])
    return "/".join(dict.fromkeys(part for part in parts if part))


def _prices(line: Mapping[str, Any]) -> dict[str, Any]:
    unit = PRICING_UNITS.get(line["unit"], line["unit"])
    tokens = of_tokens(line)
    return {
        "PricingUnit": unit,
        "PricingCategory": "Standard",
        "ConsumedUnit": "Tokens" if tokens else unit,
        "ListUnitPrice": Decimal(line["unit_price"]),
        "ContractedUnitPrice": Decimal(line["unit_price"]),
        "SkuPriceId": sku_price_id(line),
        "SkuPriceDetails": _json(_price_details(line)),
    }


def _price_details(line: Mapping[str, Any]) -> dict[str, Any]:
    """Properties per pricing unit; keys that FOCUS does not define begin with `x_`."""
    if of_tokens(line):
        _, direction, cache_action = TOKEN_CLASSES[line["token_class"]]
        facts = {"x_CacheAction": cache_action, "x_Model": line["sku"], "x_TokenDirection": direction}
        return {name: value for name, value in facts.items() if value}
    if line["unit"] == SLICE_HOURS:
        return {"InstanceType": line["accelerator"] or line["sku"], "x_Slice": line["sku"]}
    return {"GpuCount": 1, "InstanceType": line["accelerator"] or line["sku"]}


def _account(line: Mapping[str, Any]) -> dict[str, Any]:
    if of_tokens(line):
        return {"SubAccountId": line["consumer"], "SubAccountName": line["consumer"], "SubAccountType": "Consumer"}
    tags = {"suanpan/cluster": line["cluster"], "suanpan/namespace": line["namespace"]}
    return {
        "SubAccountId": f"{line['cluster']}/{line['namespace']}",
        "SubAccountName": line["namespace"],
        "SubAccountType": "Namespace",
        "Tags": _json(tags),
    }


def _tokens(line: Mapping[str, Any]) -> dict[str, Any]:
    if not of_tokens(line):
        return {}
    _, direction, cache_action = TOKEN_CLASSES[line["token_class"]]
    return {"x_TokenDirection": direction, "x_TokenCacheAction": cache_action, "x_ModelId": line["sku"]}


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
