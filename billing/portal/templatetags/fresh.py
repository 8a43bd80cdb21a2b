"""Freshness in words: ages and instants, kinds of missing usage, and the time of printing."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import template
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.portal.labels import NOTHING
from billing.portal.templatetags.portal import age, local_minute

register = template.Library()
REASONS = {
    "unowned": _("Usage without an owner"),
    "unpriced": _("Usage without a price"),
    "quarantine": _("Records in quarantine"),
    "conflict": _("Conflicting records"),
    "agent problem": _("What agents cannot meter"),
    "agent unknown": _("Unknown resources"),
}
KINDS = {"agent": _("Agent"), "gateway": _("Gateway"), "allocations": _("Allocations of")}
DEGRADED = {
    "broker": _("The broker cannot be reached: closes, mails and alerts wait."),
    "worker": _("No worker is at work: closes, mails and alerts wait."),
    "scheduler": _("The scheduler is not at work: nothing is folded, mailed or resumed."),
    "anchor": _("The head of the audit log does not leave the installation."),
    "backup_take": _("There is no recent backup."),
    "backup_prove": _("No backup was proven by a restore lately."),
    "clock": _("The clocks of this web process and of the database differ by %(n)s s."),
}
WITHHELD = {
    "early": _("Not enough data: a forecast is made from the fourth day of the period on."),
    "uncounted": _("Not enough data: the days of the period are being added up. Look again in a quarter of an hour."),
    "history": _("Not enough data: spending began less than three days ago."),
    "passed": _("More is spent by now than was forecast. Look again in a quarter of an hour."),
    "failed": _("The forecast could not be made: usage or terms of the team cannot be rated. The worker's log says why."),
}


@register.inclusion_tag("portal/parts/silent.html", takes_context=True)
def silence(context: template.Context) -> dict[str, Any]:
    """Render the silent sources of the month that the page shows, or of the running one if it shows none."""
    from billing.portal.fresh import metering

    setup = context["setup"]
    fresh = context["fresh"] if "fresh" in context else metering(context["request"], setup.zone)
    return {"metering": fresh, "setup": setup, "may": context.get("may")}


@register.inclusion_tag("portal/parts/degraded.html", takes_context=True)
def degraded(context: template.Context) -> dict[str, Any]:
    """Render the degraded parts of the platform, for users who can repair them."""
    from billing.monitoring.degraded import LIMITS, degraded_lately

    return {"degraded": degraded_lately(), "dated": LIMITS, "setup": context["setup"]}


@register.filter
def degraded_text(one: Any) -> str:
    return str(DEGRADED[one.kind]) % {"n": round(abs(one.seconds))}


@register.filter
def moment(instant: datetime | None, zone: str) -> str:
    """Format an instant in the billing zone, with the year if it is not the current one: ``1 Nov 01:00``."""
    if instant is None:
        return NOTHING
    local, here = instant.astimezone(ZoneInfo(zone)), timezone.now().astimezone(ZoneInfo(zone))
    # Translators: a date without its year, in the format characters of Django
    day = gettext("j M") if local.year == here.year else gettext("j M Y")
    return date_format(local, f"{day} H:i")


@register.filter
def age_at(since: datetime, until: datetime) -> str:
    """Format the time from `since` to `until`."""
    return age(int((until - since).total_seconds()))


@register.filter
def silent_kind(kind: str) -> Any:
    return KINDS.get(kind, kind)


@register.filter
def left_out(why: str) -> Any:
    """Return the reason why usage is in no charge, in words."""
    return REASONS.get(why, why)


@register.filter
def why_no_forecast(reason: str) -> Any:
    """Return the reason why there is no forecast, in words, if no source is silent."""
    return WITHHELD.get(reason, WITHHELD["history"])


@register.simple_tag(takes_context=True)
def printed_at(context: template.Context) -> str:
    """Return the current minute in the zone of the installation, with its name; in UTC before the set-up."""
    setup = context.get("setup")
    zone = setup.zone if setup else "UTC"
    return f"{local_minute(timezone.now(), zone)} {zone}"
