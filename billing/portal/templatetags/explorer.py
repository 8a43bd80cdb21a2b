"""Names of the values of the explorer's dimensions."""

from typing import Any

from django import template

register = template.Library()


@register.simple_tag
def called(dimension: str, value: str, page: Any) -> str:
    """Return the name of a value, in one text. `page`: an `ExplorerPage`."""
    from billing.explorer.labels import name_of
    from billing.explorer.query import NAMELESS

    name = name_of(dimension, "" if value == NAMELESS else value, page.called)
    return f"{name.text} ({name.under})" if name.under and dimension != "team" else name.text
