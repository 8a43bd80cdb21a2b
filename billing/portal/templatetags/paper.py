"""What stands on a printed page and on no screen."""

from django import template
from django.utils import timezone

from billing.portal.templatetags.portal import local_minute

register = template.Library()


@register.simple_tag(takes_context=True)
def printed_at(context: template.Context) -> str:
    """Now, to the minute, in the zone of the house, which is named. Before there is a house, in UTC."""
    setup = context.get("setup")
    zone = setup.zone if setup else "UTC"
    return f"{local_minute(timezone.now(), zone)} {zone}"
