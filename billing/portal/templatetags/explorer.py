"""What the explorer calls the values of its dimensions."""

from django import template

from billing.explorer.labels import name_of
from billing.explorer.query import NAMELESS
from billing.portal.explorer_page import ExplorerPage

register = template.Library()


@register.simple_tag
def called(dimension: str, value: str, page: ExplorerPage) -> str:
    """What a value is called, in one text."""
    name = name_of(dimension, "" if value == NAMELESS else value, page.called)
    return f"{name.text} ({name.under})" if name.under and dimension != "team" else name.text
