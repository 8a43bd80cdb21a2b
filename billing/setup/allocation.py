"""The section `allocation_policies` of the set-up file: idle time of pools and shared cost that teams pay.

    allocation_policies:
      - name: idle-v1
        valid_from: 2026-10-01
        idle:
          - {cluster: hq-1, accelerator: NVIDIA-H800, price_per_gpu_hour: "6.0000", method: proportional}
        shared:
          - {name: gateway, amount_per_month: "1000.00", method: even}
          - {name: registry, amount_per_month: "500.00", method: fixed, shares: {nlp: "0.7", cv: "0.3"}}
          - name: datasets                     # instead of an amount: what was kept and asked for, at the store's prices
            storage: [{tier: hot, tb_months: "200", price_per_tb_month: "150"}]
            requests: [{class: PUT, count: 2500000000, price_per_1000: "0.005"}]
            method: proportional

A policy holds for the billing months that begin while it is in force, so it begins with a month.
"""

from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from billing.rates.models import AllocationPolicy
from billing.rates.services import rules_publish
from billing.setup.file import Entry
from billing.tenancy.models import Team
from pricing.allocation import AllocationError, Method, Split
from pricing.fields import InputError
from pricing.storage import parse_store_use

METHODS = tuple(method.value for method in Method)


def allocation_policy_store(entry: Entry, zone: str, actor: str) -> tuple[bool, str]:
    """Publish one entry; whether that changed anything, and in words what.  Raises SetUpFileError, RateError."""
    name, valid_from = entry.text("name"), entry.instant("valid_from", zone)
    local = valid_from.astimezone(ZoneInfo(zone))
    if (local.day, local.hour, local.minute, local.second, local.microsecond) != (1, 0, 0, 0, 0):
        raise entry.error("valid_from", f"{valid_from.isoformat()} must be the start of a billing month in {zone}")
    rules = {
        "idle": [_idle(rule) for rule in entry.entries("idle")],
        "shared": [_shared(rule) for rule in entry.entries("shared")],
    }
    entry.finish()
    _refuse_twice(entry, rules)
    changed = rules_publish(AllocationPolicy, name=name, valid_from=valid_from, rules=rules, actor=actor)
    return changed, f"allocation policy {name} from {valid_from.isoformat()}"


def _idle(rule: Entry) -> dict[str, Any]:
    price = rule.decimal("price_per_gpu_hour", places=4, at_least="0.0001")
    told = {
        "cluster": rule.name("cluster"), "accelerator": rule.name("accelerator"),
        "price": format(price, "f"), **_split(rule),
    }  # fmt: skip
    rule.finish()
    return told


def _shared(rule: Entry) -> dict[str, Any]:
    made_of = {name: rule.value(name) for name in ("storage", "requests", "month_seconds") if rule.has(name)}
    amount = _stored(rule, made_of) if made_of else rule.decimal("amount_per_month", places=2, at_least="0.01")
    told = {"name": rule.text("name"), "amount": format(amount, "f"), **made_of, **_split(rule)}
    rule.finish()
    return told


def _stored(rule: Entry, made_of: dict[str, Any]) -> Decimal:
    """What a store costs; kept in the rule with what it is made of."""
    if rule.has("amount_per_month"):
        raise rule.error("amount_per_month", "stands beside storage and requests: give the amount, or what it is made of")
    try:
        amount = parse_store_use(made_of).total
    except InputError as error:
        raise rule.error("shared", "; ".join(error.messages)) from error
    if not amount:
        raise rule.error("storage", "costs nothing: there is nothing to share")
    return amount


def _split(rule: Entry) -> dict[str, Any]:
    method, given = rule.choice("method", METHODS), rule.value("shares") or {}
    if not isinstance(given, dict):
        raise rule.error("shares", f"{given!r} must be ratios by team such as {{nlp: 0.7, cv: 0.3}}")
    unknown = set(given) - set(Team.objects.filter(is_group=False).values_list("code", flat=True))
    if unknown:
        raise rule.error("shares", f"{sorted(unknown)[0]!r} is not declared under `teams:`")
    try:
        shares = {str(team): Decimal(str(share)) for team, share in given.items()}
        Split(Method(method), shares)
    except (AllocationError, InvalidOperation) as error:
        raise rule.error("shares", f"{given!r}: {error}") from error
    return {"method": method, "shares": {team: format(share, "f") for team, share in sorted(shares.items())}}


def _refuse_twice(entry: Entry, rules: dict[str, list[dict[str, Any]]]) -> None:
    for field, names in (("idle", [(rule["cluster"], rule["accelerator"]) for rule in rules["idle"]]),
                         ("shared", [rule["name"] for rule in rules["shared"]])):  # fmt: skip
        if len(set(names)) < len(names):
            raise entry.error(field, "names the same pool or cost twice")
    if not rules["idle"] and not rules["shared"]:
        raise entry.error("idle", "the policy says nothing: give idle or shared")
