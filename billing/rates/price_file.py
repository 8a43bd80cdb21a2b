"""File of a price list: the YAML of the set-up file, with the cost sheets of its prices.

An exported file can be imported as a draft, applied, or compared with a text tool; a new export gives the same bytes.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from billing.rates.models import CostSheet, PriceDraft, PriceVersion, TokenCostSheet
from billing.rates.price_list import GPU_FIELDS, TOKEN_FIELDS, UP_TO, price_text
from pricing.contexts import class_and_context, parse_context
from pricing.cost_sheet import COMPLETE, SIMPLE
from pricing.loadtests.own import RUN_FIELDS
from pricing.token_sheet import BY_CONTEXT, NUMBERS

LOAD_TEST_FIELDS = ("accelerator", "gpus", "model", "engine", "precision", "runs")
Content = dict[str, list[dict[str, str]]]
ORDER = {
    name: place
    for place, name in enumerate(
        dict.fromkeys(
            [*GPU_FIELDS, *TOKEN_FIELDS, "currency", *SIMPLE, *COMPLETE, "tariff", "method", BY_CONTEXT,
             "prefill_share", *NUMBERS, "report", *LOAD_TEST_FIELDS, *RUN_FIELDS]
        )
    )
}  # fmt: skip
UNIT_FIELDS = {"GPU-Hours": "price_per_gpu_hour", "Slice-Hours": "price_per_slice_hour"}


def version_content(version: PriceVersion) -> Content:
    """Return the list of a published version in its written form."""
    gpu = []
    # in written order: prices are stored in the order of the list
    for item in version.gpu.select_related("cost_sheet").order_by("id"):
        named = {"accelerator": item.accelerator, "resource": item.resource}
        price = {"cost_sheet": item.cost_sheet.name} if item.cost_sheet else {UNIT_FIELDS[item.unit]: price_text(item.price)}
        gpu.append({name: value for name, value in named.items() if value} | price)
    tokens: dict[tuple[str, str], dict[str, str]] = {}
    for row in version.tokens.select_related("cost_sheet").order_by("id"):
        token_class, context = class_and_context(row.token_class)
        # one entry per model: its sheet prices all classes
        if row.cost_sheet:
            tokens[row.model, ""] = {"model": row.model, "cost_sheet": row.cost_sheet.name}
            continue
        entry = tokens.setdefault((row.model, context), {"model": row.model})
        last = parse_context(context).last if context else None
        entry |= {} if last is None else {UP_TO: str(last)}
        entry[token_class] = price_text(row.price)
    return {"gpu": gpu, "tokens": list(tokens.values())}


def rebased(content: Content, base: Content, current: Content) -> Content:
    """Return the list of a draft with entries of `current` in place of those unchanged since `base`.

    >>> base, current = ({"gpu": [], "tokens": [{"model": "a", "input": price}]} for price in ("1.0000", "2.0000"))
    >>> new = {"model": "b", "input": "3.0000"}
    >>> rebased({"gpu": [], "tokens": [*base["tokens"], new]}, base, current)["tokens"]
    [{'model': 'a', 'input': '2.0000'}, {'model': 'b', 'input': '3.0000'}]
    """
    merged: Content = {}
    for part, entries in content.items():
        known, wanted = _by_key(base[part]), _by_key(current[part])
        mine = _by_key(entries)
        kept = {key: wanted.get(key) if entry == known.get(key) else entry for key, entry in mine.items()}
        # an entry that the draft removed from `base` stays removed; one added by `current` is taken over
        added = [entry for key, entry in wanted.items() if key not in mine and key not in known]
        merged[part] = [*(entry for entry in kept.values() if entry is not None), *added]
    return merged


def _by_key(entries: Iterable[dict[str, str]]) -> dict[tuple[str, ...], dict[str, str]]:
    """Return entries by their subject: an accelerator, a resource, a model, prompts of a model up to a length."""
    return {tuple(entry.get(name, "") for name in ("accelerator", "resource", "model", UP_TO)): entry for entry in entries}


def export_yaml(listed: PriceDraft | PriceVersion, zone: str) -> str:
    """Return the file of a draft or published version; instants are in the billing zone."""
    content = listed.content if isinstance(listed, PriceDraft) else version_content(listed)
    sections: dict[str, Any] = {}
    if sheets := _sheets(CostSheet, content["gpu"]):
        sections["cost_sheets"] = sheets
    if sheets := _sheets(TokenCostSheet, content["tokens"]):
        sections["token_cost_sheets"] = sheets
    lists = {name: [in_written_order(entry) for entry in content[name]] for name in ("gpu", "tokens") if content[name]}
    sections["price_versions"] = [{"name": listed.name, "valid_from": _instant(listed.valid_from, zone), **lists}]
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True, width=120)


def draft_document(draft: PriceDraft, zone: str) -> str:
    """Return a draft as one YAML document for `price_draft_write`; its sheets are stored and not repeated."""
    lists = {name: [in_written_order(entry) for entry in draft.content[name]] for name in ("gpu", "tokens")}
    document = {"name": draft.name, "valid_from": _instant(draft.valid_from, zone), "reason": draft.reason, **lists}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _sheets(model: type[CostSheet] | type[TokenCostSheet], entries: Iterable[dict[str, str]]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(entry["cost_sheet"] for entry in entries if "cost_sheet" in entry))
    stored = {sheet.name: sheet.inputs for sheet in model.objects.filter(name__in=names)}
    return [{"name": name, "sheet": in_written_order(stored[name])} for name in names]


def in_written_order(value: Any) -> Any:
    """Return the value with its fields in the customary order, which the database does not keep."""
    if isinstance(value, list):
        return [in_written_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = sorted(value, key=lambda name: (ORDER.get(name, len(ORDER)), name))
    return {name: in_written_order(value[name]) for name in names}


def _instant(instant: datetime, zone: str) -> str:
    return instant.astimezone(ZoneInfo(zone)).isoformat()
