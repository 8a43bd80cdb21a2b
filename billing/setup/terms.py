"""Sections of the set-up file beside the price list: policies, commitments, carbon factors.

    efficiency_policies:
      - {name: bands-v1, valid_from: 2026-10-01, hfu_below: "0.20", penalty: "0.20", mfu_above: "0.50", reward: "0.10"}
    interruption_policies:        # team, platform, or the platform up to a number of the last hours; default: team
      - {name: sla-v1, valid_from: 2026-10-01, preempted: platform, node_lost: {cap_hours: "1"}}
    allocation_policies:          # for the billing months that begin while it is in force, so it begins with a month
      - name: idle-v1
        valid_from: 2026-10-01
        idle:
          - {cluster: hq-1, accelerator: NVIDIA-H800, price_per_gpu_hour: "6.0000", method: proportional}
        shared:
          - {name: gateway, amount_per_month: "1000.00", method: even}
          - {name: registry, amount_per_month: "500.00", method: fixed, shares: {nlp: "0.7", cv: "0.3"}}
          - name: datasets                     # instead of an amount: stored bytes and requests at the store's prices
            storage: [{tier: hot, tb_months: "200", price_per_tb_month: "150"}]
            requests: [{class: PUT, count: 2500000000, price_per_1000: "0.005"}]
            method: proportional
    commitments:                  # or amount_per_month for the hours; or cost_sheet for the price of its reserved tier
      - {name: nlp-2026, team: nlp, accelerator: NVIDIA-H800, gpu_hours_per_month: "1000", price_per_gpu_hour: "8.0000",
         valid_from: 2026-10-01, valid_until: 2027-10-01}
    carbon:                       # or the figures: location_kg_per_kwh, market_kg_per_kwh, source
      - {cluster: hq-1, valid_from: 2026-01-01, region: CN-East, year: 2023}                  # official average
      - {cluster: eu-1, valid_from: 2026-01-01, region: SE, year: 2024, basis: lifecycle}
    tags:                         # the complete list of tags that are stored from a source or cluster
      - {source: batch, key: product, from: tags.product, longest: 64, values_a_day: 1000}
      - {source: litellm-hq, key: customer, from: metadata.customer}   # or request_tags: "customer:acme"
      - {cluster: hq-1, key: project, from: label.project}        # or tags.NAME
    service_tiers:                # the tier that a tier stated by a source is billed as
      - {source: litellm-hq, service_tier: flex, treat_as: standard, valid_from: 2026-10-01}
    capacity_types:               # the type of allocations that match all patterns, whatever their node states
      - {cluster: hq-1, priority_class: "spot-*", capacity_type: spot, valid_from: 2026-10-01}
      - {cluster: hq-1, label: "pool=reserved-*", capacity_type: reserved, priority: 1}     # or namespace, queue, tag

Each function stores one entry and returns True if that changed anything, and its description.  Raises SetUpFileError,
RateError.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

from billing.rates.models import AllocationPolicy, Commitment, EfficiencyPolicy, InterruptionPolicy
from billing.rates.selectors import reserved_price
from billing.rates.services import (
    CommitmentTerms,
    carbon_factors_put,
    commitment_put,
    efficiency_policy_publish,
    rules_publish,
)
from billing.rating.accelerators import unknown_accelerator
from billing.rating.selectors import closed_until
from billing.setup.file import Entry
from billing.tenancy.models import TagRule, Team
from billing.tenancy.selectors import billing_setup
from billing.usage.services import capacity_type_rule_put, tier_rule_put
from billing.usage.services.capacity_type_rules import CONDITIONS
from metering.intervals import billing_month, month_of
from metering.names import MAX_NAME_BYTES
from metering.record_checks import EARLIEST
from metering.records import STANDARD_TIER, canonical_capacity_type, canonical_tier
from metering.request_tags import is_origin
from pricing.allocation import AllocationError, Method, Split
from pricing.carbon import BASES, OFFICIAL, RESIDUAL, CarbonError, carbon_factor
from pricing.commitments import HOURS_PLACES
from pricing.efficiency import SECONDS_PER_GPU_HOUR, Form, Metric
from pricing.fields import InputError, exact_number
from pricing.money import amount_places, round_to, smallest_amount
from pricing.number_text import plain_text
from pricing.storage import STORE_FIELDS, parse_store_use

Stored = tuple[bool, str]
TAG_KEY: Final = re.compile(r"[\w./-]+")
MOST_TAG_KEY, LONGEST_TAG = 64, 512
BANDS: Final = {"hfu_below": ("1", 6), "penalty": ("10", 4), "mfu_above": ("1", 6), "reward": ("1", 4)}
"""Largest value and decimals of each band."""
REASONS: Final = {
    "preempted": "preempted", "reclaimed": "reclaimed", "evicted": "evicted", "node_lost": "node lost",
}  # fmt: skip
"""End reason of the contract, by field of the file."""
METHODS: Final = tuple(method.value for method in Method)
CARBON_PLACES: Final = 6


def efficiency_policy_store(entry: Entry, zone: str, actor: str) -> Stored:
    classes = list(entry.entries("classes"))
    fields: dict[str, Any] = {
        "name": entry.text("name"), "valid_from": entry.instant("valid_from", zone),
        **{name: entry.decimal(name, places=places, at_most=most) for name, (most, places) in BANDS.items()},
        "min_minutes": entry.integer("min_minutes", default=30),
        "min_coverage": entry.decimal("min_coverage", places=6, at_most="1", default=Decimal("0.95")),
        "min_gpu_seconds": entry.integer("min_gpu_seconds", default=SECONDS_PER_GPU_HOUR),
        "form": entry.choice("form", tuple(Form), Form.BANDS.value),
        "width": entry.decimal("width", places=6, at_least="0.000001", at_most="1", default=Decimal("0.10")),
        "shadow": entry.flag("shadow"),
        "classes": [_workload_class(item, zone) for item in classes],
        "unrewarded": entry.texts("unrewarded"),
        "gather_short": entry.flag("gather_short"),
        "neutral_pool": entry.flag("neutral_pool"),
        "penalise_on": entry.choice("penalise_on", tuple(Metric), Metric.HFU.value),
    }  # fmt: skip
    for code in fields["unrewarded"]:
        if not Team.objects.filter(code=code).exists():
            raise entry.error("unrewarded", f"{code!r} is no team")
    _bands_agree(entry, fields, fields)
    if not EfficiencyPolicy.objects.filter(name=fields["name"]).exists():  # stored policies stay as they are
        for one, stored in zip(classes, fields["classes"], strict=True):
            _bands_agree(one, stored, fields | stored)
    entry.finish()
    changed = efficiency_policy_publish(fields=fields, actor=actor)
    return changed, f"efficiency policy {fields['name']} from {fields['valid_from'].isoformat()}"


def _bands_agree(entry: Entry, own: Mapping[str, Any], bands: Mapping[str, Any]) -> None:
    """Refuse bands that give a job both penalty and reward, at the field that the entry itself declares."""
    below, above = bands["hfu_below"], bands["mfu_above"]
    if Decimal(below) > Decimal(above):
        if "hfu_below" in own:
            raise entry.error("hfu_below", f"{below} must not be above mfu_above {above}")
        raise entry.error("mfu_above", f"{above} must not be below hfu_below {below}")


def _workload_class(entry: Entry, zone: str) -> dict[str, Any]:
    """Return the bands of some workloads as the policy stores them."""
    fields: dict[str, Any] = {"name": entry.text("name")}
    for name in ("kinds", "queues", "accelerators"):
        if patterns := entry.texts(name):
            fields[name] = patterns
    for name, (most, places) in BANDS.items():
        if entry.value(name) is not None:
            fields[name] = str(entry.decimal(name, places=places, at_most=most))
    if until := entry.optional_instant("exempt_until", zone):
        fields["exempt_until"] = until.isoformat()
    if entry.value("penalise_on") is not None:
        fields["penalise_on"] = entry.choice("penalise_on", tuple(Metric))
    entry.finish()
    if len(fields) == 1:
        raise entry.error("name", f"{fields['name']!r} changes nothing: give bands, or exempt_until")
    return fields


def interruption_policy_store(entry: Entry, zone: str, actor: str) -> Stored:
    name, valid_from = entry.text("name"), entry.instant("valid_from", zone)
    rules = {reason: _rule(entry, field) for field, reason in REASONS.items() if entry.value(field) is not None}
    if not rules:
        raise entry.error("name", f"policy {name} says nothing: give one of {', '.join(REASONS)}")
    entry.finish()
    changed = rules_publish(InterruptionPolicy, name=name, valid_from=valid_from, rules=rules, actor=actor)
    return changed, f"interruption policy {name} from {valid_from.isoformat()}"


def _rule(entry: Entry, field: str) -> dict[str, str]:
    given = entry.value(field)
    if given in ("team", "platform"):
        return {"payer": str(given)}
    if not isinstance(given, dict):
        raise entry.error(field, f"{given!r} must be team, platform or {{cap_hours: 1}}")
    part = Entry(given, f"{entry.where}.{field}", entry.path)
    hours = part.decimal("cap_hours", places=6, at_least="0.000001", at_most="8784")
    part.finish()
    return {"payer": "cap", "hours": plain_text(hours)}


def allocation_policy_store(entry: Entry, zone: str, actor: str) -> Stored:
    name, valid_from = entry.text("name"), entry.instant("valid_from", zone)
    local = valid_from.astimezone(ZoneInfo(zone))
    if local != local.replace(day=1, hour=0, minute=0, second=0, microsecond=0):
        raise entry.error("valid_from", f"{valid_from.isoformat()} must be the start of a billing month in {zone}")
    rules = {
        "idle": [_idle(rule) for rule in entry.entries("idle")],
        "shared": [_shared(rule) for rule in entry.entries("shared")],
    }
    entry.finish()
    if not AllocationPolicy.objects.filter(name=name).exists():  # stored policies stay as they are
        for rule in entry.entries("idle"):
            _refuse_unknown(rule, rule.name("accelerator"))
        for rule in entry.entries("shared"):
            _refuse_other_month(rule, month_of(valid_from, zone), zone)
    named = {field: [(rule.get("name"), rule.get("cluster"), rule.get("accelerator")) for rule in rules[field]]
             for field in rules}  # fmt: skip
    for field, names in named.items():
        if len(set(names)) < len(names):
            raise entry.error(field, "names the same pool or cost twice")
    if not rules["idle"] and not rules["shared"]:
        raise entry.error("idle", "the policy says nothing: give idle or shared")
    changed = rules_publish(AllocationPolicy, name=name, valid_from=valid_from, rules=rules, actor=actor)
    return changed, f"allocation policy {name} from {valid_from.isoformat()}"


def _idle(rule: Entry) -> dict[str, Any]:
    price = rule.decimal("price_per_gpu_hour", places=4, at_least="0.0001")
    content = {
        "cluster": rule.name("cluster"), "accelerator": rule.name("accelerator"),
        "price": format(price, "f"), **_split(rule),
    }  # fmt: skip
    rule.finish()
    return content


def _shared(rule: Entry) -> dict[str, Any]:
    made_of = {name: rule.value(name) for name in STORE_FIELDS if rule.has(name)}
    amount = _store_cost(rule, made_of) if made_of else _amount(rule)
    content = {"name": rule.text("name"), "amount": format(amount, "f"), **made_of, **_split(rule)}
    rule.finish()
    return content


def _amount(entry: Entry) -> Decimal:
    """Read an amount above zero, in the decimals of the currency."""
    return entry.decimal("amount_per_month", places=amount_places(), at_least=str(smallest_amount()))


def _store_cost(rule: Entry, made_of: dict[str, Any]) -> Decimal:
    """Return the cost of a store's use; the rule stores it with its parts."""
    if rule.has("amount_per_month"):
        raise rule.error("amount_per_month", "is given beside storage and requests: give the amount, or what it is made of")
    try:
        amount = parse_store_use(made_of).total
    except InputError as error:
        raise rule.error("shared", "; ".join(error.messages)) from error
    if not amount:
        raise rule.error("storage", "costs nothing: there is nothing to share")
    return amount


def _refuse_unknown(entry: Entry, accelerator: str) -> None:
    """Refuse an unknown accelerator: unused hours of it would be billed, or idle hours of no pool."""
    if (unknown := unknown_accelerator(accelerator)) is not None:
        raise entry.error("accelerator", str(unknown))


def _refuse_other_month(rule: Entry, month: str, zone: str) -> None:
    """Refuse bytes stored over the seconds of another month than the policy's first: they are figures of one month."""
    given, seconds = rule.value("month_seconds"), billing_month(month, zone).microseconds // 10**6
    if given is not None and exact_number(given) != seconds:
        raise rule.error("month_seconds", f"{given} must be {seconds}, the seconds of {month}, with which the policy begins")


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


def commitment_store(entry: Entry, team: Team, zone: str, actor: str) -> Stored:
    """Store an entry of `commitments`: hours that a team pays for, used or not."""
    name, price = entry.text("name"), _committed_price(entry)
    terms = CommitmentTerms(
        name, team, entry.name("accelerator"), _hours(entry, price), price,
        entry.instant("valid_from", zone), entry.optional_instant("valid_until", zone),
    )  # fmt: skip
    entry.finish()
    if not Commitment.objects.filter(name=name).exists():  # stored commitments stay as they are
        _refuse_unknown(entry, terms.accelerator)
    changed = commitment_put(terms=terms, actor=actor)
    hours = f"{plain_text(terms.gpu_hours)} GPU-hours of {terms.accelerator} a month at {price}"
    until = f" until {terms.valid_until.isoformat()}" if terms.valid_until else ""
    return changed, f"commitment {name} of {team.code}: {hours} from {terms.valid_from.isoformat()}{until}"


def _committed_price(entry: Entry) -> Decimal:
    if not entry.has("cost_sheet"):
        return entry.decimal("price_per_gpu_hour", places=4, at_least="0.0001")
    if entry.has("price_per_gpu_hour"):
        raise entry.error("price_per_gpu_hour", "is given beside cost_sheet: give one of them")
    sheet, currency = entry.text("cost_sheet"), billing_setup().currency
    price = reserved_price(sheet, currency)
    if not price:
        expected = f"must be a stored cost sheet with reserved_ratio and prices in {currency}"
        raise entry.error("cost_sheet", f"{sheet!r} {expected}")
    return price


def _hours(entry: Entry, price: Decimal) -> Decimal:
    """Return GPU-hours a month, as given, or from an amount that must be a whole number of them to 6 decimals."""
    if entry.has("gpu_hours_per_month") == entry.has("amount_per_month"):
        raise entry.error("gpu_hours_per_month", "say either the hours or the amount (amount_per_month) of a month")
    if entry.has("gpu_hours_per_month"):
        return entry.decimal("gpu_hours_per_month", places=HOURS_PLACES, at_least="0.000001")
    amount = _amount(entry)
    exact = Fraction(amount) / Fraction(price)
    hours = round_to(exact, HOURS_PLACES)
    if hours != exact:
        raise entry.error(
            "amount_per_month", f"{amount} at {price} is no whole number of GPU-hours to 6 decimals: say the hours"
        )
    return hours


def carbon_store(entry: Entry, zone: str, actor: str) -> Stored:
    """Store an entry of `carbon`: figures, or a known factor by region and year."""
    cluster, valid_from = entry.name("cluster"), entry.instant("valid_from", zone)
    location, market, source = _known_factors(entry)
    location = location or entry.decimal("location_kg_per_kwh", places=CARBON_PLACES, at_most="10")
    market = entry.decimal("market_kg_per_kwh", places=CARBON_PLACES, at_most="10", default=market or location)
    source = entry.text("source", source, limit=500)
    entry.finish()
    changed = carbon_factors_put(
        cluster=cluster, valid_from=valid_from, location=location, market=market, source=source, actor=actor
    )
    closed = closed_until()
    # after the write: the error rolls it back with the transaction of the file
    if changed and closed is not None and valid_from < closed:
        raise entry.error("valid_from", f"{valid_from.isoformat()} lies in a closed month, whose documents never change")
    return changed, f"carbon factors of {cluster} from {valid_from.isoformat()}"


def tier_rule_store(entry: Entry, zone: str, actor: str) -> Stored:
    """Store an entry of `service_tiers`: the tier that a stated tier is billed as, from an instant on or always."""
    source, stated = entry.name("source"), entry.name("service_tier")
    treat_as = canonical_tier(entry.name("treat_as"))
    valid_from = entry.optional_instant("valid_from", zone) or EARLIEST
    entry.finish()
    tier = canonical_tier(stated)
    if tier == STANDARD_TIER:
        raise entry.error("service_tier", f"{stated!r} is the standard tier, which needs no rule")
    if treat_as == tier:
        raise entry.error("treat_as", f"{treat_as!r} is the tier itself")
    changed = tier_rule_put(source=source, service_tier=tier, treat_as=treat_as, valid_from=valid_from, actor=actor)
    return changed, f"service tier {tier} of {source} -> {treat_as} from {valid_from.isoformat()}"


def capacity_type_store(entry: Entry, zone: str, actor: str) -> Stored:
    """Store an entry of `capacity_types`: the type of matching allocations of a cluster, from an instant on or always."""
    cluster = entry.name("cluster")
    conditions = {name: entry.text(name, limit=MAX_NAME_BYTES) for name in CONDITIONS if entry.has(name)}
    for name in ("label", "tag"):
        key, equals, pattern = conditions.get(name, "a=b").partition("=")
        if not key or not equals or not pattern:
            raise entry.error(name, f"{conditions[name]!r} must be NAME=PATTERN")
    capacity_type = canonical_capacity_type(entry.name("capacity_type"))
    priority = entry.integer("priority", at_most=1000, default=0)
    valid_from = entry.optional_instant("valid_from", zone) or EARLIEST
    entry.finish()
    changed = capacity_type_rule_put(
        cluster=cluster, conditions=conditions, capacity_type=capacity_type, priority=priority, valid_from=valid_from,
        actor=actor,
    )  # fmt: skip
    closed = closed_until()
    # after the write: the error rolls it back with the transaction of the file
    if changed and closed is not None and valid_from < closed:
        raise entry.error("valid_from", f"{valid_from.isoformat()} lies in a closed month, whose documents never change")
    fits = ", ".join(f"{name} {pattern}" for name, pattern in conditions.items()) or "all"
    return changed, f"capacity type of {cluster}, {fits} -> {capacity_type} from {valid_from.isoformat()}"


def tag_rules_read(top: Entry) -> list[TagRule]:
    """Return the rules of `tags`: the origin of a tag in a source or cluster, the longest value, and the values per day."""
    rules: dict[tuple[str, str, str], TagRule] = {}
    for entry in top.entries("tags"):
        cluster = entry.name("cluster") if entry.has("cluster") else ""
        source, key = "" if cluster else entry.name("source"), entry.name("key")
        if len(key) > MOST_TAG_KEY or not TAG_KEY.fullmatch(key):
            raise entry.error("key", f"{key!r} must be up to {MOST_TAG_KEY} letters, digits and any of _ . / -")
        origin = entry.text("from", f"tags.{key}", limit=MAX_NAME_BYTES)
        if cluster and (not origin.startswith(("tags.", "label.")) or origin in ("tags.", "label.")):
            raise entry.error("from", f"{origin!r} must be tags.NAME or label.NAME")
        if not cluster and not is_origin(origin):
            raise entry.error("from", f"{origin!r} must be tags.NAME, metadata.NAME or request_tags")
        longest = entry.integer("longest", at_least=1, at_most=LONGEST_TAG, default=64)
        values_a_day = entry.integer("values_a_day", at_least=1, at_most=100_000, default=1000)
        entry.finish()
        if (source, cluster, key) in rules:
            raise entry.error("key", f"{key!r} of {source or cluster!r} is declared twice")
        rules[source, cluster, key] = TagRule(
            source=source, cluster=cluster, key=key, origin=origin, longest=longest, values_a_day=values_a_day
        )
    return list(rules.values())


def _known_factors(entry: Entry) -> tuple[Decimal | None, Decimal | None, str | None]:
    """Return kilograms per kWh by location and by contract, and their source; None if the entry names no region.

    If a residual factor of the region and year is known, it is the one by contract: green certificates are counted, and
    the rest takes the remaining mix. Bases are never mixed beyond that.
    """
    if not entry.has("region"):
        return None, None, None
    if entry.has("location_kg_per_kwh"):
        raise entry.error("location_kg_per_kwh", "is given beside region: give one of them")
    region, year = entry.text("region", limit=32), entry.integer("year", at_least=2000, at_most=2199)
    basis = entry.choice("basis", BASES, OFFICIAL)
    location = _factor(region, year, basis)
    if location is None:
        raise entry.error("region", f"no {basis} carbon factor of {region!r} for {year} is known: give the figure itself")
    market = _factor(region, year, RESIDUAL) if basis == OFFICIAL else None
    return location, market, f"{region} {year}, {basis}"


def _factor(region: str, year: int, basis: str) -> Decimal | None:
    try:
        return round_to(carbon_factor(region, year, basis), CARBON_PLACES)
    except CarbonError:
        return None
