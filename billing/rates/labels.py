"""Display names of states of price drafts and commitments, parts of a price, and token classes."""

from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from billing.approvals.models import Step
from billing.rates.models import PriceDraft
from pricing.contexts import class_and_context
from pricing.efficiency import Form

PRICE_DRAFT_STATE: Final = {
    PriceDraft.State.DRAFT: _("Draft"),
    PriceDraft.State.SUBMITTED: _("Waits for approval"),
    PriceDraft.State.APPROVED: _("Published"),
    PriceDraft.State.REJECTED: _("Sent back"),
    PriceDraft.State.WITHDRAWN: _("Given up"),
}
PRICE_DRAFT_ACTION: Final = {
    Step.Action.CREATED: _("made the draft"),
    Step.Action.EDITED: _("changed it"),
    Step.Action.SUBMITTED: _("submitted it"),
    Step.Action.APPROVED: _("approved and published it"),
    Step.Action.REJECTED: _("sent it back"),
    Step.Action.WITHDRAWN: _("gave it up"),
}
COMMITMENT_STATE: Final = {
    "proposed": _("Proposed"),
    "approved": _("Approved"),
    "rejected": _("Rejected"),
    "withdrawn": _("Withdrawn"),
}
PRICE_SOURCE: Final = {
    "price_per_gpu_hour": _("price per GPU-hour"),
    "price_per_slice_hour": _("price per slice-hour"),
    "cost_sheet": _("cost sheet"),
}
PRICE_PART: Final = {
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
}
"""Display names of a cost sheet's components, the parameters of its list price, and its footprint."""
TOKEN_CLASS: Final = {
    "input": _("Input"),
    "cache_read": _("Cache read"),
    "cache_creation": _("Cache write"),
    "output": _("Output"),
}
POLICY_FORM: Final = {Form.BANDS: _("Bands"), Form.LINEAR: _("Linear")}
TOKEN_METHOD: Final = {
    "ratio": _("R, fixed ratios"),
    "phase": _("T, phase time"),
    "least-squares": _("L, least squares"),
    "output-only": _("O, output only"),
}


def token_class_words(code: str) -> Any:
    """Return the display name of a token class, with its bucket of prompt lengths if it has one."""
    name, context = class_and_context(code)
    words = TOKEN_CLASS.get(name, name)
    return _("%(class)s, prompts of %(tokens)s tokens") % {"class": words, "tokens": context} if context else words
