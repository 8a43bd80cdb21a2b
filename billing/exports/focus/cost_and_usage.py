"""PURE: rows of Cost and Usage from the lines of one issued document.

Columns that are equal for all rows of a line are built once and repeated by Arrow; a month may have hundreds of thousands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa

from billing.exports.focus.columns import COST_AND_USAGE
from billing.exports.focus.shares import Evidence, Share, is_usage
from billing.rating.grains import Place
from metering.allocation import INTERRUPTIONS
from pricing.allocation import Method
from pricing.commitments import UNUSED, USED
from pricing.contexts import priced_class
from pricing.meters import Explanation, Role, line_kind
from pricing.money import EXACT
from pricing.number_text import fixed_text, quantity_text
from pricing.rate_card import MILLION_TOKENS, SLICE_HOURS

TOKEN_CLASSES = {
    "input": ("Input Tokens", "Input", None),
    "cache_read": ("Cached Input Tokens", "Input", "Read"),
    "cache_creation": ("Cache Write Tokens", "Input", "Write"),
    "output": ("Output Tokens", "Output", None),
}
"""Meter, x_TokenDirection and x_TokenCacheAction; the classes are disjoint, so no token is on two rows."""
STYLES = {
    "reversal": "Reversed", "rebill": "Billed again", "allowance": "Credit", "withdrawal": "Credit taken back",
}  # fmt: skip
COMMITMENT_TYPE = "Take-or-Pay"
ALLOCATED_PLACES = 12
ZERO = Decimal("0.00")
NOT_EFFICIENCY = {*INTERRUPTIONS, USED, UNUSED, *Method}
PRICING_UNITS = {MILLION_TOKENS: "1000000 Tokens"}
VARYING = (
    "ChargePeriodStart", "ChargePeriodEnd", "BilledCost", "EffectiveCost", "ListCost", "ContractedCost",
    "PricingQuantity", "ConsumedQuantity", "ResourceId", "ResourceName", "RegionId", "RegionName", "x_EnergyKwh",
    "x_CarbonKg", "x_Mfu", "x_Hfu", "x_Coverage", "CommitmentDiscountQuantity", "ContractApplied",
)  # fmt: skip


class Face(Enum):
    """Kind of row: a line under a commitment is a purchase with billed cost, and consumption with effective cost."""

    PLAIN = "plain"
    BOUGHT = "bought"
    CONSUMED = "consumed"


@dataclass(frozen=True, slots=True)
class SplitLine:
    """Line of a document with its parts and, for an adjustment, the evidence of each job.

    `list_price`: on-demand price of usage that a commitment pays for. `ratio`: of a part of idle time or shared cost, its
    share of the whole.
    """

    line: Mapping[str, Any]
    shares: Sequence[Share]
    evidence: Mapping[str, Evidence]
    list_price: Decimal | None = None
    ratio: Decimal | None = None
    face: Face = Face.PLAIN


def rows_of(document: Mapping[str, Any], split: Sequence[SplitLine]) -> pa.Table:
    """Build the rows of Cost and Usage of one document; grain: line, UTC hour, job or endpoint, site."""
    split = [face for item in split for face in _faces(item)]
    constant_schema = pa.schema([field for field in COST_AND_USAGE if field.name not in VARYING])
    constants = pa.Table.from_pylist([_constants(document, item) for item in split], schema=constant_schema)
    # one dictionary per line and not per row: Arrow repeats it for each of its hours
    repeated = constants.take(pa.array([i for i, item in enumerate(split) for _ in item.shares], type=pa.int64()))
    values = zip(*(_varying(item, share) for item in split for share in item.shares), strict=True)
    varying = dict(zip(VARYING, values, strict=True)) if len(repeated) else dict.fromkeys(VARYING, ())
    columns = [
        pa.array(varying[field.name], type=field.type) if field.name in varying else repeated.column(field.name)
        for field in COST_AND_USAGE
    ]
    return pa.Table.from_arrays(columns, schema=COST_AND_USAGE)


def stated(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a line as FOCUS states it: hours credited for late usage as negative quantity, not as negative price."""
    if not of_commitment(line) or not line["unit_price"].startswith("-"):
        return line
    quantity = EXACT.minus(Decimal(line["quantity"]))
    return {**line, "quantity": quantity_text(quantity), "unit_price": line["unit_price"].removeprefix("-")}


def _faces(item: SplitLine) -> list[SplitLine]:
    """Return the line itself, or its purchase, in one row, and its consumption."""
    if not of_commitment(item.line):
        return [item]
    line, first, last = item.line, item.shares[0], item.shares[-1]
    quantity = Decimal(line["quantity"])
    price = EXACT.multiply(Decimal(line["unit_price"]), quantity)
    bought = Share(first.start, last.end, first.place, Decimal(line["amount"]), price, quantity, None, None)
    return [replace(item, shares=[bought], face=Face.BOUGHT), replace(item, face=Face.CONSUMED)]


def _varying(item: SplitLine, share: Share) -> tuple[Any, ...]:
    """Return the values of a row in the order of VARYING."""
    found = item.evidence.get(share.place.resource)
    site = None if item.face is Face.BOUGHT else share.place.site or None
    measured = (None, None, None) if found is None else (found.mfu, found.hfu, found.coverage)
    billed = ZERO if item.face is Face.CONSUMED else share.amount
    effective = ZERO if item.face is Face.BOUGHT else share.amount
    list_cost, consumed = share.list_cost, share.consumed
    if item.face is Face.CONSUMED:
        list_cost = EXACT.multiply(_list_price(item), share.quantity or ZERO)
        consumed = None if item.line["reason"] == UNUSED else consumed
    return (
        share.start, share.end, billed, effective, list_cost, list_cost, share.quantity, consumed,
        *_resource(item, share.place), site, site, share.energy_kwh, share.co2_kg, *measured, *_applied(item, share),
    )  # fmt: skip


def _list_price(item: SplitLine) -> Decimal:
    return Decimal(item.line["unit_price"]) if item.list_price is None else item.list_price


def _applied(item: SplitLine, share: Share) -> tuple[Decimal | None, str | None]:
    """Return CommitmentDiscountQuantity and ContractApplied; JSON numbers are formatted from decimals, never by floats."""
    if item.face is Face.PLAIN or share.quantity is None:
        return None, None
    name, number = json.dumps(item.line["policy"], ensure_ascii=False), quantity_text(share.quantity)
    unit = json.dumps(item.line["unit"])
    applied = (
        f'{{"ContractCommitmentAppliedQuantity":{number},"ContractCommitmentAppliedUnit":{unit},'
        f'"ContractCommitmentId":{name},"ContractId":{name}}}'
    )
    return share.quantity, f'{{"Elements":[{applied}]}}'


def _resource(item: SplitLine, place: Place) -> tuple[str, str]:
    """Return resource id and name: of a model, of a commitment, or of a job (`kind/name`) in its namespace."""
    line = item.line
    if item.face is Face.BOUGHT or line["reason"] == UNUSED:
        return line["policy"], line["policy"]
    if of_allocation(line):
        return allocated_resource(line), line["sku"]
    if of_tokens(line):
        return place.resource, line["sku"]
    return f"{line['cluster']}/{line['namespace']}/{place.resource}", place.resource.partition("/")[2]


def _constants(document: Mapping[str, Any], item: SplitLine) -> dict[str, Any]:
    """Return the columns of a line that are equal for all its hours."""
    line = item.line
    usage = is_usage(line)
    return {
        **billing_facts(document),
        "BillingAccountName": document["recipient"]["name"],
        "BillingAccountType": "Team",
        "ServiceProviderName": document["issuer"]["name"],
        "HostProviderName": document["issuer"]["name"],
        "InvoiceDetailId": detail_id(document, line),
        "ChargeCategory": "Usage" if item.face is Face.CONSUMED else charge_category(line),
        "ChargeClass": line["charge_class"],
        "ChargeDescription": description(line),
        "ChargeFrequency": "Recurring" if item.face is Face.BOUGHT else "Usage-Based" if usage else "One-Time",
        "x_PriceVersion": line["price_version"],
        "x_ChargeMonth": line["charge_period"],
        "x_PolicyVersion": line["policy"],
        "x_EfficiencyReason": None if line["reason"] in NOT_EFFICIENCY else line["reason"],
        **(_prices(line) if usage else {}),
        **service(line),
        **_account(line),
        **(_allocation(item) if of_allocation(line) else {}),
        **(_commitment(item) if item.face is not Face.PLAIN else {}),
    }


def _allocation(item: SplitLine) -> dict[str, Any]:
    """Return the columns of an allocation; ratios of one whole add up to 1. A pool is tagged like its devices."""
    line = item.line
    pool = {"suanpan/accelerator": line["accelerator"], "suanpan/cluster": line["cluster"]}
    ratio = "" if item.ratio is None else fixed_text(item.ratio, ALLOCATED_PLACES)
    return {
        "AllocatedMethodId": f"{line['policy']}/{line['reason']}",
        "AllocatedMethodDetails": f'{{"Elements":[{{"AllocatedRatio":{ratio}}}]}}' if ratio else None,
        "AllocatedResourceId": allocated_resource(line),
        "AllocatedResourceName": line["sku"],
        "AllocatedTags": _json(pool) if of_pool(line) else None,
        "ResourceType": "Pool" if of_pool(line) else "Shared Service",
    }


def _commitment(item: SplitLine) -> dict[str, Any]:
    """Return the columns of a commitment, and prices: usage has its on-demand price."""
    line, bought = item.line, item.face is Face.BOUGHT
    unused = line["reason"] == UNUSED
    own = bought or unused
    price = Decimal(line["unit_price"]) if own else _list_price(item)
    return {
        "CommitmentDiscountId": line["policy"],
        "CommitmentDiscountName": line["policy"],
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountType": COMMITMENT_TYPE,
        "CommitmentDiscountStatus": None if bought else "Unused" if unused else "Used",
        "CommitmentDiscountUnit": line["unit"],
        "PricingCategory": "Standard" if bought else "Committed",
        "ConsumedUnit": None if own else line["unit"],
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "SkuPriceId": sku_price_id(line, bought=own),
        **({"ResourceType": "Commitment"} if own else {}),
    }


def billing_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of issuer, recipient and period, equal in every data set."""
    return {
        "BillingAccountId": document["recipient"]["team"],
        "BillingCurrency": document["currency"],
        "BillingPeriodStart": datetime.fromisoformat(document["period"]["start_utc"]),
        "BillingPeriodEnd": datetime.fromisoformat(document["period"]["end_utc"]),
        "InvoiceIssuerName": document["issuer"]["name"],
        "InvoiceId": document["number"],
    }


def detail_id(document: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    """Return the id of an invoice line, the same in Cost and Usage and in Invoice Detail."""
    return f"{document['number']}-{line['position']:04d}"


def charge_category(line: Mapping[str, Any]) -> str:
    """Return the category: a reward is a Credit, a penalty an Adjustment; a reversal keeps its category.

    A line under a commitment is billed as a Purchase; its usage has separate rows without billed cost.
    """
    if of_commitment(line):
        return "Purchase"
    if is_usage(line):
        return "Usage"
    rewarded = line["kind"] == "credit" or line["unit_price"].startswith("-")
    return "Credit" if rewarded else "Adjustment"


def description(line: Mapping[str, Any]) -> str:
    """Describe the charge, its place and its reason in one sentence."""
    place = "all consumers" if of_tokens(line) else f"{line['cluster']}/{line['namespace']}"
    subject, style = line["consumer"] or place, line.get("style")
    if line["reason"] == UNUSED:
        text = f"Unused share of commitment {line['policy']} on {line['sku']}"
    elif line["reason"] == USED:
        text = f"Used share of commitment {line['policy']} on {line['sku']} for {subject}"
    elif of_allocation(line):
        whole = f"Idle time of {line['sku']} in {line['cluster']}" if of_pool(line) else f"Shared cost {line['sku']}"
        text = f"{whole}, {line['reason']} part by policy {line['policy']}"
    elif line["reason"] in INTERRUPTIONS:
        text = f"Carried by the platform, {line['reason']}, by policy {line['policy']} on {line['sku']} for {subject}"
    elif line["policy"]:
        text = f"Efficiency {line['reason']} by policy {line['policy']} on {line['sku']} for {subject}"
    else:
        meter = TOKEN_CLASSES[line["token_class"]][0] if of_tokens(line) else line["unit"]
        prompts = f" in requests of {line['context']} input tokens" if line.get("context") else ""
        text = f"{meter} of {line['sku']}{prompts} for {subject}, price version {line['price_version']}"
    if style:
        return f"{STYLES[style]}: {text}, {line['charge_period']}"
    return f"{text}, reported late for {line['charge_period']}" if line["charge_class"] else text


def of_commitment(line: Mapping[str, Any]) -> bool:
    """Return True if the line bills a part of a commitment; an amount credited of one is a plain credit."""
    return line_kind(line["kind"]).bought


def of_allocation(line: Mapping[str, Any]) -> bool:
    """Return True if the line is a part of idle time or shared cost."""
    return line_kind(line["kind"]).role is Role.ALLOCATED


def of_pool(line: Mapping[str, Any]) -> bool:
    """Return True if the line is a part of a pool's idle time."""
    return line_kind(line["kind"]).explained_by is Explanation.POOL


def allocated_resource(line: Mapping[str, Any]) -> str:
    """Return the id of the pool or cost that is split."""
    return f"{line['cluster']}/{line['accelerator']}" if line["cluster"] else str(line["sku"])


def of_tokens(line: Mapping[str, Any]) -> bool:
    """Return True if the line is about tokens, or a credit on such a line."""
    return line["token_class"] is not None


def service(line: Mapping[str, Any]) -> dict[str, Any]:
    if of_allocation(line) and not of_pool(line):
        return {
            "ServiceCategory": "Management and Governance", "ServiceSubcategory": "Other (Management and Governance)",
            "ServiceName": "Shared Services", "SkuMeter": "Shared Cost", "ResourceType": "Shared Service",
            "SkuId": line["sku"],
        }  # fmt: skip
    if of_tokens(line):
        meter = TOKEN_CLASSES[line["token_class"]][0]
        names = ("AI and Machine Learning", "Generative AI", "Model Inference", meter, "Endpoint")
    else:
        meter = "Slice Hours" if line["unit"] == SLICE_HOURS else "GPU Hours"
        names = ("Compute", "Other (Compute)", "GPU Training", meter, "Job")
    columns = ("ServiceCategory", "ServiceSubcategory", "ServiceName", "SkuMeter", "ResourceType")
    return {**dict(zip(columns, names, strict=True)), "SkuId": line["sku"]}


def sku_price_id(line: Mapping[str, Any], *, bought: bool = False) -> str:
    """Return the id of a price list entry, equal in every version and for every team: it has neither price nor contract.

    A resource may have a price of its own on each accelerator; `bought` hours have one beside the daily one.
    Source: FOCUS 1.4, Cost and Usage, SKU Price ID.
    """
    priced = priced_class(line["token_class"] or "", line.get("context", ""))
    parts = (line["accelerator"], line["sku"], priced, line.get("qualifier"), "commitment" if bought else "")
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
    """Return properties per pricing unit; keys that FOCUS does not define begin with `x_`."""
    if of_tokens(line):
        _, direction, cache_action = TOKEN_CLASSES[line["token_class"]]
        facts = {
            "x_CacheAction": cache_action, "x_Model": line["sku"], "x_PromptTokens": line.get("context"),
            "x_TokenDirection": direction,
        }  # fmt: skip
        return {name: value for name, value in facts.items() if value}
    if line["unit"] == SLICE_HOURS:
        return {"InstanceType": line["accelerator"] or line["sku"], "x_Slice": line["sku"]}
    return {"GpuCount": 1, "InstanceType": line["accelerator"] or line["sku"]}


def sub_account(line: Mapping[str, Any]) -> str | None:
    """Return the consumer or the namespace of the usage; None for unused commitments."""
    if line["consumer"]:
        return str(line["consumer"])
    return f"{line['cluster']}/{line['namespace']}" if line["namespace"] else None


def _account(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the sub-account; for tokens also their class and model."""
    account = {"SubAccountId": sub_account(line)}
    if of_tokens(line):
        _, direction, cache_action = TOKEN_CLASSES[line["token_class"]]
        tokens = {"x_TokenDirection": direction, "x_TokenCacheAction": cache_action, "x_ModelId": line["sku"]}
        named = {"SubAccountName": line["consumer"], "SubAccountType": "Consumer"} if line["consumer"] else {}
        return account | named | tokens
    if line["namespace"] is None:
        return {}
    tags = {"suanpan/cluster": line["cluster"], "suanpan/namespace": line["namespace"]}
    return account | {"SubAccountName": line["namespace"], "SubAccountType": "Namespace", "Tags": _json(tags)}


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
