"""Policies, carbon factors, commitments and the billing set-up as text for `apply`, from stored rows or from a form.

Operators change these sections in the portal; none of them needs a second person, as with the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from billing.invoices.models import BillingPeriod
from billing.rates.models import AllocationPolicy, CarbonFactors, Commitment, EfficiencyPolicy, InterruptionPolicy
from billing.setup.apply import Applied, fields_apply
from billing.setup.file import Entry as FileEntry
from billing.setup.file import SetUpFileError, declared_text
from billing.setup.owners import Preview, preview_of, sections_of
from billing.setup.terms import BANDS, REASONS
from billing.tenancy.models import BillingSetup
from billing.tenancy.services import ISSUER_FACTS
from metering.messages import Message
from pricing.number_text import plain_text

SECTIONS: Final = ("efficiency_policies", "interruption_policies", "allocation_policies", "carbon", "billing")
NUMBERS: Final = (*BANDS, "min_coverage", "width")
OTHERS: Final = ("min_minutes", "min_gpu_seconds", "form", "shadow", "classes", "unrewarded", "gather_short", "neutral_pool",
                 "penalise_on")  # fmt: skip

Entry = dict[str, Any]


def efficiency_declared(policy: EfficiencyPolicy, zone: str) -> Entry:
    """Return a stored policy as an entry of its section."""
    numbers = {name: plain_text(getattr(policy, name)) for name in NUMBERS}
    return {**_named(policy, zone), **numbers, **{name: getattr(policy, name) for name in OTHERS}}


def interruption_declared(policy: InterruptionPolicy, zone: str) -> Entry:
    """Return a stored policy as an entry of its section."""
    fields = {reason: name for name, reason in REASONS.items()}
    rules = {
        fields[reason]: {"cap_hours": rule["hours"]} if rule["payer"] == "cap" else rule["payer"]
        for reason, rule in policy.rules.items()
    }
    return {**_named(policy, zone), **rules}


def allocation_declared(policy: AllocationPolicy, zone: str) -> Entry:
    """Return a stored policy as an entry of its section; an amount that is computed from a store's use is left out."""
    renamed = {"price": "price_per_gpu_hour", "amount": "amount_per_month"}

    def row(rule: Mapping[str, Any]) -> Entry:
        made = "storage" in rule or "requests" in rule
        return {renamed.get(name, name): value for name, value in rule.items() if not (made and name == "amount")}

    rules = {name: [row(rule) for rule in policy.rules.get(name, ())] for name in ("idle", "shared")}
    return {**_named(policy, zone), **rules}


def carbon_declared(row: CarbonFactors, zone: str) -> Entry:
    """Return stored factors as an entry of their section."""
    return {
        "cluster": row.cluster, "valid_from": _local(row, zone), "location_kg_per_kwh": plain_text(row.location_kg_per_kwh),
        "market_kg_per_kwh": plain_text(row.market_kg_per_kwh), "source": row.source,
    }  # fmt: skip


def policies_declared(zone: str) -> dict[str, list[Entry]]:
    """Return all stored policies and factors, by section."""
    return {
        "efficiency_policies": [efficiency_declared(row, zone) for row in EfficiencyPolicy.objects.all()],
        "interruption_policies": [interruption_declared(row, zone) for row in InterruptionPolicy.objects.all()],
        "allocation_policies": [allocation_declared(row, zone) for row in AllocationPolicy.objects.all()],
        "carbon": [carbon_declared(row, zone) for row in CarbonFactors.objects.all()],
    }


def billing_declared(setup: BillingSetup) -> Entry:
    """Return the billing set-up as its section."""
    names = ("currency", "zone", "issuer", *ISSUER_FACTS, "review", "reopening")
    days = {name: [day.isoformat() for day in getattr(setup, name)] for name in ("holidays", "working_days")}
    required = "true" if setup.cost_center_required else ""
    more = {"gather_consumers_above": str(setup.gather_consumers_above), "cost_center_required": required}
    return {**{name: getattr(setup, name) for name in names}, **days, **more}


def commitments_text(commitments: Iterable[Commitment], zone: str) -> str:
    """Return stored commitments as their section."""
    entries = [
        {
            **_named(row, zone), "team": row.team.code, "accelerator": row.accelerator,
            "gpu_hours_per_month": plain_text(row.gpu_hours), "price_per_gpu_hour": plain_text(row.price),
            "valid_until": row.valid_until and row.valid_until.astimezone(ZoneInfo(zone)).isoformat(),
        }
        for row in commitments
    ]  # fmt: skip
    return policies_text({"commitments": entries})


def policies_text(sections: Mapping[str, Sequence[Mapping[str, Any]] | Mapping[str, Any]]) -> str:
    """Return the sections as `apply` takes them, without empty ones."""
    declared = {
        name: _filled(found) if isinstance(found, Mapping) else [_filled(entry) for entry in found]
        for name, found in sections.items() if found
    }  # fmt: skip
    return declared_text(declared)


def policies_apply(*, text: str, name: str, actor: str) -> Applied:
    """Apply a text of policies and factors, as `apply` does.  Raises SetUpFileError, or what the services raise."""
    return fields_apply(_sections(text, name), actor)


def policies_preview(*, text: str, name: str, actor: str, periods: Sequence[BillingPeriod]) -> Preview:
    """Return the changes of a text, and its payers in `periods` that are not closed.  Raises as `policies_apply`."""
    return preview_of(_sections(text, name), actor, periods)


def _sections(text: str, name: str) -> FileEntry:
    """Parse the sections of a text.  Raises SetUpFileError, also if one person would end the review of drafts by another."""
    top, four_eyes = sections_of(text, name, SECTIONS), BillingSetup.Review.FOUR_EYES
    wanted = top.value("billing")
    # a missing `review` would fall back to its default and end four-eyes as well
    ends = isinstance(wanted, dict) and wanted.get("review") != four_eyes
    if ends and BillingSetup.objects.filter(review=four_eyes).exists():
        raise SetUpFileError(Message("billing.review: four-eyes is ended by `manage.py apply` only, not in the portal"))
    return top


def _filled(entry: Mapping[str, Any]) -> Entry:
    return {key: value for key, value in entry.items() if value not in (None, "", [], {}, False)}


def _named(policy: Any, zone: str) -> Entry:
    return {"name": policy.name, "valid_from": _local(policy, zone)}


def _local(row: Any, zone: str) -> str:
    text: str = row.valid_from.astimezone(ZoneInfo(zone)).isoformat()
    return text
