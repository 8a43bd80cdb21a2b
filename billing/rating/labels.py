"""Display names of line kinds, line reasons and retroactive changes."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from billing.rating.models import RetroactiveChange

LINE_KIND: Final = {
    "gpu": _("GPU"),
    "tokens": _("Tokens"),
    "idle": _("Idle capacity"),
    "shared": _("Shared cost"),
    "commitment": _("Commitments"),
    "efficiency": _("Efficiency adjustments"),
    "interruption": _("Interruption credits"),
    "credit": _("Credits"),
}
SECTION: Final = {
    "gpu": _("GPU"),
    "tokens": _("Tokens"),
    "adjustments": _("Adjustments"),
    "idle": _("Idle capacity"),
    "shared": _("Shared cost"),
}
LINE_REASON: Final = {
    "proportional": _("In proportion to use"),
    "even": _("Evenly"),
    "fixed": _("Fixed share"),
    "used": _("Used share of the commitment"),
    "unused": _("Unused share of the commitment"),
    "preempted": _("Preempted"),
    "reclaimed": _("Reclaimed"),
    "evicted": _("Evicted"),
    "node lost": _("Node lost"),
    "penalty": _("Penalty"),
    "reward": _("Reward"),
    "neutral": _("Neutral"),
    "neutral:short": _("Neutral: job too short"),
    "neutral:coverage": _("Neutral: too little was measured"),
    "neutral:inconsistent": _("Neutral: MFU above HFU, or more measured than held"),
    "neutral:missing": _("Neutral: not measured"),
    "neutral:exempt": _("Neutral: exempt by the policy"),
    "neutral:suspended": _("Neutral: rewards of this team are suspended"),
}
CHANGE_KIND: Final = {
    RetroactiveChange.Kind.PRICE: _("Prices"),
    RetroactiveChange.Kind.NAMESPACE: _("Owner of a namespace"),
    RetroactiveChange.Kind.CONSUMER: _("Owner of a consumer"),
    RetroactiveChange.Kind.EFFICIENCY: _("Late efficiency samples"),
}
CHANGE_STATUS: Final = {
    "proposed": _("Proposed"),
    "approved": _("Approved"),
    "rejected": _("Rejected"),
}
