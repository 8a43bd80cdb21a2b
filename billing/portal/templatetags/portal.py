"""How figures and codes look on a page. Money and quantities stay decimals: nothing here makes a float of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

from django import template
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from billing.portal.audit_words import AUDIT
from billing.portal.input_names import input_name
from billing.runtime.progress import STEPS
from billing.runtime.translation import translated
from pricing.contexts import class_and_context, priced_class

register = template.Library()
register.filter("input_name", input_name)
register.filter("translated", translated)
UNITS: Mapping[str, Callable[[int], str]] = {
    "months": lambda n: ngettext("%(n)s month", "%(n)s months", n),
    "records": lambda n: ngettext("%(n)s record", "%(n)s records", n),
    "objects": lambda n: ngettext("%(n)s object", "%(n)s objects", n),
    "resources": lambda n: ngettext("%(n)s resource", "%(n)s resources", n),
    "tokens": lambda n: ngettext("%(n)s token", "%(n)s tokens", n),
    "units": lambda n: ngettext("%(n)s device", "%(n)s devices", n),
    "teams": lambda n: ngettext("%(n)s team", "%(n)s teams", n),
}
"""What exceptions count, in words; time is told in hours."""
MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EM DASH}"
HOUR = 3600
CODE = ((mark_safe(""), mark_safe("")), (mark_safe("<code>"), mark_safe("</code>")))
NEARLY = Decimal("0.8")
LONG_NUMBER = re.compile(r"(?<![\w.,/-])\d{5,}(?![\w-])")

WORDS = {
    "gpu": _("GPU"),
    "idle": _("Idle capacity"),
    "shared": _("Shared cost"),
    "proportional": _("In proportion to use"),
    "even": _("Evenly"),
    "fixed": _("Fixed share"),
    "commitment": _("Commitments"),
    "used": _("Used share of the commitment"),
    "unused": _("Unused share of the commitment"),
    "tokens": _("Tokens"),
    "efficiency": _("Efficiency adjustments"),
    "interruption": _("Interruption credits"),
    "preempted": _("Preempted"),
    "reclaimed": _("Reclaimed"),
    "evicted": _("Evicted"),
    "node lost": _("Node lost"),
    "input": _("Input"),
    "cache_read": _("Cache read"),
    "cache_creation": _("Cache write"),
    "output": _("Output"),
    "penalty": _("Penalty"),
    "reward": _("Reward"),
    "neutral": _("Neutral"),
    "neutral:short": _("Neutral: job too short"),
    "neutral:coverage": _("Neutral: too little was measured"),
    "neutral:inconsistent": _("Neutral: MFU above HFU"),
    "neutral:missing": _("Neutral: not measured"),
    "neutral:exempt": _("Neutral: exempt by the policy"),
    "neutral:suspended": _("Neutral: rewards of this team are suspended"),
    "admin": _("Platform admin"),
    "finance": _("Finance"),
    "open": _("Open"),
    "closing": _("Closing"),
    "closed": _("Closed"),
    "draft": _("Draft"),
    "approved": _("Approved"),
    "requested": _("Waits for approval"),
    "issued": _("Issued"),
    "void": _("Void"),
    "preview": _("Preview"),
    "disputed": _("Disputed"),
    "triaged": _("At work"),
    "proposed": _("Proposed"),
    "namespace": _("Owner of a namespace"),
    "consumer": _("Owner of a consumer"),
    "evidence": _("Evidence asked for"),
    "escalated": _("Escalated"),
    "upheld": _("Upheld"),
    "hold": _("Kept off the ledger"),
    "let_go": _("Let go to the ledger"),
    "rejected": _("Rejected"),
    "withdrawn": _("Withdrawn"),
    "settled": _("Settled"),
    "shadow": _("Shadow"),
    "chargeback": _("Charged"),
    "credit": _("Credits"),
    "rebill": _("Billed again"),
    "reversal": _("Reversed"),
    "withdrawal": _("Credit taken back"),
    "allowance": _("Credit"),
    "price": _("Wrong price"),
    "quantity": _("Wrong quantity"),
    "ownership": _("Wrong team"),
    "mfu": _("Wrong efficiency data"),
    "sla": _("Fault of the platform"),
    "duplicate": _("Billed twice"),
    "goodwill": _("Goodwill"),
    "write_off": _("Written off"),
    "pending": _("In progress"),
    "done": _("Done"),
    "refused": _("Refused"),
    "failed": _("Failed"),
    "close": _("Close"),
    "issue": _("Issue"),
    "assess": _("Assess"),
    "focus": _("FOCUS"),
    "unowned_namespace": _("Namespace without owner"),
    "unowned_consumer": _("Consumer without owner"),
    "unpriced": _("No price"),
    "shared_cost_unknown": _("Shared cost not entered"),
    "team_held": _("Team that cannot be billed"),
    "upheld_uncredited": _("Upheld dispute without its credit"),
    "upheld_repeatedly": _("Reason upheld repeatedly"),
    "disputes": _("disputes"),
    "team_unrated": _("Team that cannot be rated"),
    "other_legal_entity": _("Team of another legal entity"),
    "energy_difference": _("Meter and charges differ"),
    "metering_gap": _("Metering gap"),
    "estimated_end": _("End estimated"),
    "agent_problem": _("Not metered by its agent"),
    "unknown_resource": _("Extended resource that nobody knows"),
    "unknown_share": _("Share of a device unknown"),
    "unbilled_month": _("Month that was not closed"),
    "scan_difference": _("Scans differ from what was watched"),
    "quarantine": _("Quarantined records"),
    "conflict": _("Conflicting records"),
    "period_not_ended": _("The month has not ended"),
    "overlap": _("Held twice"),
    "over_capacity": _("Above capacity"),
    "sequence_gap": _("Numbered records that never arrived"),
    "silent_source": _("Source without usage lately"),
    "silent_cluster": _("Owned cluster without any report"),
    "engine_difference": _("Gateways and inference servers differ"),
    "engine_difference_day": _("Gateways and inference servers differ on a day"),
    "invalid": _("Breaks the contract"),
    "future": _("Lies in the future"),
    "dismissed": _("Dismissed"),
    "actual": _("Spending"),
    "forecast": _("Forecast"),
    "threshold": _("Threshold reached"),
    "burn": _("Spends too fast"),
    "anomaly": _("Unusual day"),
    "info": _("Information"),
    "warning": _("Warning"),
    "urgent": _("Urgent"),
    "true": _("Was unusual"),
    "false": _("False alarm"),
    "planned": _("Was planned"),
    "month": _("per month"),
    "quarter": _("per quarter"),
    "plan": _("plan with monthly amounts"),
    "line": _("Mean rate of the period"),
    "weekday": _("Median of each weekday"),
    "recent": _("Mean of the last 14 days"),
    "pace": _("Mean of the last 3 days"),
    "trend": _("Trend of the last 4 weeks"),
    "notify": _("tell"),
    "require_approver": _("new jobs need an approver"),
    "lower_priority": _("lower priority"),
    "rate_limit": _("limit tokens a minute"),
    "cap": _("refuse new requests"),
    "hardware": _("Hardware"),
    "capital": _("Capital"),
    "power": _("Power"),
    "hosting": _("Hosting"),
    "operations": _("Operations"),
    "maintenance": _("Maintenance"),
    "demand_charge": _("Demand charge"),
    "fabric": _("Fabric"),
    "scratch": _("Scratch storage"),
    "spares": _("Spares"),
    "unsold": _("Unsold hours"),
    "reserve": _("Reserve"),
    "markup": _("Markup"),
    "licences": _("Licences"),
    "energy_gap": _("Shared energy"),
    "currency": _("Currency"),
    "exchange_rate": _("Exchange rate"),
    "rate_date": _("Day of the rate"),
    "true_up_per_gpu_hour": _("True-up of last year, per GPU-hour"),
    "on_demand": _("On demand"),
    "reserved": _("Reserved"),
    "preemptible": _("Pre-emptible"),
    "kwh": _("kWh at the meter"),
    "kg_operational": _("kg of CO2, by location"),
    "kg_operational_market": _("kg of CO2, by contract"),
    "kg_embodied": _("kg of CO2 of making the card"),
    "kg_co2": _("kg of CO2, location and making"),
    "ratio": _("R, fixed ratios"),
    "phase": _("T, phase time"),
    "least-squares": _("L, least squares"),
    "price_draft": _("Being written"),
    "price_submitted": _("Waits for approval"),
    "price_approved": _("Published"),
    "price_rejected": _("Sent back"),
    "price_withdrawn": _("Given up"),
    "price_step_created": _("made the draft"),
    "price_step_edited": _("changed it"),
    "price_step_submitted": _("submitted it"),
    "price_step_approved": _("approved and published it"),
    "price_step_rejected": _("sent it back"),
    "price_step_withdrawn": _("gave it up"),
    "price_per_gpu_hour": _("price per GPU-hour"),
    "price_per_slice_hour": _("price per slice-hour"),
    "cost_sheet": _("cost sheet"),
    "by_team": _("Team"),
    "by_namespace": _("Namespace"),
    "by_workload": _("Workload"),
    "by_queue": _("Queue"),
    "by_model": _("Model"),
    "by_consumer": _("Consumer"),
    "by_accelerator": _("Accelerator"),
    "by_site": _("Cluster"),
    "nameless_team": _("Without a team"),
    "nameless_namespace": _("Tokens, which have no namespace"),
    "nameless_workload": _("Not of one workload: tokens, late usage"),
    "nameless_queue": _("Without a queue"),
    "nameless_consumer": _("Devices, which have no consumer"),
    "nameless_model": _("Devices, which have no model"),
    "nameless_accelerator": _("Tokens, which have no accelerator"),
    "nameless_site": _("Tokens, which have no cluster"),
    "effect_before": _("Before"),
    "effect_after": _("Now"),
    "effect_price": _("Price"),
    "effect_usage": _("Usage"),
    "effect_begun": _("Use begun"),
    "effect_ended": _("Use ended"),
    "effect_efficiency": _("Efficiency"),
    "effect_interruption": _("Interruptions"),
    "effect_late": _("Late usage"),
    "effect_other": _("Other"),
    "document_invoice": _("Invoice"),
    "document_shadow": _("Shadow"),
    "document_credit": _("Credit note"),
    "document_rebill": _("Rebill"),
    "step_billing": _("Billing set-up"),
    "step_teams": _("Teams"),
    "step_cluster": _("First cluster"),
    "step_gateway": _("First gateway"),
    "step_owners": _("Owners"),
    "step_price": _("First price"),
    "up_to_tokens": _("Prompts up to"),
    "heat_devices": _("Devices in use, on average"),
    "heat_tokens": _("Tokens an hour, on average"),
    **{f"audit_{kind}": words for kind, words in AUDIT.items()},
}


@register.filter
def word(code: str) -> Any:
    """The words for a code; a code nobody translated is shown as it is. A class of tokens names its bucket of prompts."""
    token_class, context = class_and_context(code)
    if context:
        return _("%(class)s, prompts of %(tokens)s tokens") % {"class": word(token_class), "tokens": context}
    return WORDS.get(code) or WORDS.get(code.partition(":")[0], code)


@register.filter
def in_context(token_class: str, context: str) -> Any:
    """The words for a class of tokens in a bucket of prompt lengths."""
    return word(priced_class(token_class, context))


@register.filter
def step_words(step: str) -> str:
    """What a runner of an operation is at."""
    return gettext(STEPS.get(step, step))


@register.filter
def word_of(code: str, family: str) -> Any:
    """The words for a code of one family, where the same code says something else elsewhere."""
    return WORDS.get(f"{family}_{code}") or code


@register.filter
def stem(code: str) -> str:
    """A code without what follows its colon: `penalty:1.05` is a `penalty`."""
    return code.partition(":")[0]


@register.filter
def money(value: Decimal | None) -> str:
    """``1234.5`` as ``1,234.50``."""
    return NOTHING if value is None else _grouped(value, 2)


@register.filter
def price(value: Decimal | None) -> str:
    """A unit price: four decimals, or all it has where an adjustment needs more."""
    if value is None:
        return NOTHING
    exponent = value.normalize().as_tuple().exponent
    return _grouped(value, max(4, -exponent if isinstance(exponent, int) else 4))


@register.filter
def quantity(value: Decimal | None) -> str:
    """A quantity with the six decimals of the invoice."""
    return NOTHING if value is None else _grouped(value, 6)


@register.filter
def count(value: Decimal | int | None) -> str:
    """A whole number, or a decimal as exact as it is, with separators."""
    if value is None:
        return NOTHING
    exact = Decimal(value)
    if exact != exact.to_integral_value():
        exponent = exact.normalize().as_tuple().exponent
        return _grouped(exact, -exponent if isinstance(exponent, int) else 0)
    return _grouped(exact, 0)


@register.filter
def named(names: Mapping[str, str], code: str) -> str:
    """The name of a code, or the code."""
    return names.get(code, code)


@register.filter
def compact(value: Decimal | None) -> str:
    """A figure for a small cell: one decimal below ten, thousands as k, millions as M; the exact one is in the file."""
    if not value:
        return NOTHING if value is None else "0"
    for bound, letter in ((1_000_000, "M"), (1000, "k")):
        if value >= bound - bound / 2000:  # 999,500 is no thousand thousands, but a million
            return f"{_grouped(value / bound, 1 if value < 10 * bound else 0)}{letter}"
    return _grouped(value, 1 if value < 10 else 0)


@register.filter
def gpu_hours(seconds: Decimal | int | None) -> str:
    """Device-seconds shown as hours with one decimal; the exact figure belongs beside it."""
    return NOTHING if seconds is None else _grouped(Decimal(seconds) / HOUR, 1)


@register.filter
def hours(value: Decimal | None) -> str:
    """Hours with one decimal; the exact figure is in the file."""
    return NOTHING if value is None else _grouped(value, 1)


@register.filter
def age(seconds: int) -> str:
    """How long ago, in the largest unit of which it has two: ``12 s``, ``5 min``, ``30 h``, ``4 d``."""
    if seconds >= 2 * 86_400:
        return gettext("%(n)s d") % {"n": seconds // 86_400}
    if seconds >= 2 * 3600:
        return gettext("%(n)s h") % {"n": seconds // 3600}
    if seconds >= 2 * 60:
        return gettext("%(n)s min") % {"n": seconds // 60}
    return gettext("%(n)s s") % {"n": seconds}


@register.filter
def amount_of_unit(value: Decimal, unit: str) -> str:
    """The quantity of an exception, in a unit that a person thinks in."""
    if unit in ("gpu_seconds", "unit_seconds", "seconds"):
        hours_shown = gpu_hours(value)
        if unit == "unit_seconds":
            return gettext("%(n)s unit-hours") % {"n": hours_shown}
        return f"{hours_shown} GPU-h" if unit == "gpu_seconds" else gettext("%(n)s h") % {"n": hours_shown}
    words = UNITS.get(unit)
    return words(ceil(value)) % {"n": count(value)} if words else f"{count(value)} {unit}"


@register.filter
def ratio(value: Decimal | None) -> str:
    """A ratio as percent with one decimal; not measured is not zero."""
    return NOTHING if value is None else f"{_grouped(Decimal(value) * 100, 1)}%"


@register.filter
def change(multiplier: Decimal) -> str:
    """A multiplier as the change it makes: ``1.2`` is ``+20%``."""
    percent = ((Decimal(multiplier) - 1) * 100).normalize()
    if not percent:
        return "0%"
    return f"{'+' if percent > 0 else MINUS}{abs(percent):f}%"


@register.filter
def local(instant: datetime | None, zone: str) -> str:
    """An instant in the billing zone, to the second; microseconds only where there are any."""
    if instant is None:
        return NOTHING
    there = instant.astimezone(ZoneInfo(zone))
    return there.strftime("%Y-%m-%d %H:%M:%S") + (f".{there.microsecond:06d}" if there.microsecond else "")


@register.filter
def local_day(instant: datetime | None, zone: str) -> str:
    """The day of an instant in the billing zone."""
    return NOTHING if instant is None else instant.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d")


@register.filter
def local_minute(instant: datetime | None, zone: str) -> str:
    """An instant in the billing zone, to the minute."""
    return NOTHING if instant is None else instant.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


@register.filter
def stamp(text: str) -> str:
    """An instant of a document to the minute, in the zone that the document says."""
    return text[:16].replace("T", " ")


@register.filter
def share_of(part: Decimal | int | None, whole: Decimal | int | None) -> str:
    """Width of a bar in percent, within 0 and 100; for SVG attributes, so never localised."""
    if not part or not whole:
        return "0"
    share = Decimal(part) / Decimal(whole) * 100
    return f"{min(max(share, Decimal(0)), Decimal(100)):.3f}"


@register.filter
def is_near(used: Decimal) -> bool:
    """Whether a budget is nearly used up."""
    return used >= NEARLY


@register.filter
def decimal(text: str) -> Decimal:
    """A decimal of a document, where it stands as text so that no digit is lost."""
    return Decimal(text)


@register.filter
def blocking_first(exceptions: Sequence[Any]) -> list[Any]:
    """What holds the close before what only wants to be seen."""
    return sorted(exceptions, key=lambda item: not item.blocks)


@register.simple_tag
def exception_link(item: Any, month: str) -> str:
    """The page where an exception is solved or seen."""
    return str(item.facts.link(month))


@register.filter
def codes(text: str) -> str:
    """What stands in backticks as code; everything is escaped."""
    pieces = text.split("`")
    return format_html_join(
        "", "{}{}{}", ((CODE[index % 2][0], piece, CODE[index % 2][1]) for index, piece in enumerate(pieces))
    )


@register.filter
def figures(text: str) -> str:
    """A sentence with separators in its long whole numbers; decimals and parts of names stay as they are."""
    return LONG_NUMBER.sub(lambda found: f"{int(found.group()):,}", text)


@register.filter
def signed_money(value: Decimal) -> str:
    """A difference of amounts, with its sign."""
    return f"+{money(value)}" if value > 0 else money(value)


@register.filter
def signed_percent(value: Decimal | None) -> str:
    """A change in percent with its sign; nothing to compare with is no percent."""
    if value is None:
        return NOTHING
    return f"{'+' if value > 0 else ''}{_grouped(value, 2)}%"


@register.filter
def sign(value: Decimal | None) -> str:
    """Which way a figure points: for a class name; nothing for zero."""
    return "" if not value else "minus" if value < 0 else "plus"


@register.filter
def credited(value: Decimal | None) -> str:
    """A class name for an amount that takes money back; what is owed as usual stands out in no colour."""
    return "minus" if value and value < 0 else ""


def _grouped(value: Decimal | int, places: int) -> str:
    exact = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{abs(exact):,f}"
    return f"{MINUS}{text}" if exact < 0 else text
