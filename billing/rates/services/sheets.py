"""Writes of cost sheets: the cost of a GPU-hour and of 1M tokens, with every input. Evidence never changes once used."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.db import transaction

from billing.rates.models import CostSheet, GpuPrice, TokenCostSheet, TokenPrice
from billing.tenancy.audit import audit_record
from metering.messages import Message, UserError
from pricing.token_sheet import parse_token_sheet


class RateError(UserError, ValueError):
    """Error of a price or policy that contradicts published ones."""

    code = "rate"


def exact_plain(given: Any) -> Any:
    """Return the value with every number as text, which JSON keeps exactly, so that a file restores it unchanged."""
    if isinstance(given, Mapping):
        return {str(name): exact_plain(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [exact_plain(item) for item in given]
    # a bool is an int in Python, and stays a boolean
    return str(given) if isinstance(given, int | Decimal) and not isinstance(given, bool) else given


@transaction.atomic
def cost_sheet_put(*, name: str, inputs: dict[str, Any], result: dict[str, Any], actor: str) -> tuple[CostSheet, bool]:
    """Store a cost sheet with its result; one that published prices use cannot change under the same name."""
    inputs = exact_plain(inputs)
    known = CostSheet.objects.filter(name=name).first()
    if known is None:
        audit_record(actor=actor, action="cost_sheet_put", subject=name, detail={"inputs": inputs})
        return CostSheet.objects.create(name=name, inputs=inputs, result=result), True
    if known.inputs == inputs:
        return known, False
    if GpuPrice.objects.filter(cost_sheet=known).exists():
        raise RateError(Message(
            "cost sheet %(name)s is the source of published prices: give the changed sheet another name", name=name
        ))
    known.inputs, known.result = inputs, result
    known.save()
    audit_record(actor=actor, action="cost_sheet_put", subject=name, detail={"inputs": inputs})
    return known, True


@transaction.atomic
def token_cost_sheet_put(*, name: str, inputs: dict[str, Any], actor: str) -> tuple[TokenCostSheet, bool]:
    """Store a load test with its terms and the resulting token prices; under one name it changes only while unused.

    `inputs` are the fields of `pricing.token_sheet`.  Raises TokenSheetError for bad fields, LoadPointError if no run
    of the report is sustainable, RateError if published prices were made from another sheet of that name.
    """
    inputs = exact_plain(inputs)
    sheet = parse_token_sheet(inputs)
    known = TokenCostSheet.objects.filter(name=name).first()
    if known is not None and known.inputs == inputs:
        return known, False
    if known is not None and TokenPrice.objects.filter(cost_sheet=known).exists():
        raise RateError(Message(
            "token cost sheet %(name)s is the source of published prices: give the changed sheet another name", name=name
        ))
    first = sheet.tests[0]
    facts = {
        "model": first.model, "accelerator": first.accelerator, "gpus": first.gpus, "engine": first.engine,
        "precision": first.precision, "method": sheet.terms.method, "inputs": inputs, "result": sheet.result(),
    }  # fmt: skip
    stored, _ = TokenCostSheet.objects.update_or_create(name=name, defaults=facts)
    audit_record(actor=actor, action="token_cost_sheet_put", subject=name, detail={"inputs": inputs})
    return stored, True
