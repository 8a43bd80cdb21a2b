"""What was typed into a form that was refused: it stands there again, and nobody types it twice.

A page shows an answer to a form only when it refuses it; whatever is taken leads to another page.
"""

from typing import Any

from django import template
from django.http import QueryDict

register = template.Library()


def _sent(context: template.Context, at: str, kept: dict[str, Any]) -> QueryDict | None:
    """What the form that posts to `at` was sent with; None where another form or none was.

    `kept`: hidden fields by which one of many forms with the same address is known.
    """
    request = context["request"]
    if request.method != "POST" or at not in ("", request.path):
        return None
    same = all(request.POST.get(name) == str(value) for name, value in kept.items())
    return request.POST if same else None


@register.simple_tag(takes_context=True)
def typed(context: template.Context, of: str, otherwise: Any = "", at: str = "", **kept: Any) -> Any:
    """The text of the field `of` as it was sent; `otherwise` in a form that was not."""
    sent = _sent(context, at, kept)
    return otherwise if sent is None else sent.get(of, "")


@register.simple_tag(takes_context=True)
def marked(
    context: template.Context, mark: str, of: str, value: Any, otherwise: Any = False, at: str = "", **kept: Any
) -> str:
    """`mark` (selected, checked) where `value` was sent in `of`; in a form that was not sent, by `otherwise`."""
    sent = _sent(context, at, kept)
    return mark if (otherwise if sent is None else str(value) in sent.getlist(of)) else ""


@register.simple_tag(takes_context=True)
def reopened(context: template.Context, at: str, **kept: Any) -> str:
    """`open` for the fold around a form that was refused."""
    return "" if _sent(context, at, kept) is None else "open"
