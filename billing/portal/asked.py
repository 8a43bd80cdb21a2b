"""Parameters of page addresses. An invalid value returns 404 with the parameter's name and is never ignored.

An empty value asks nothing, as a form sends it. Unknown parameters are ignored: links of mails and of other
programs add parameters of their own.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.core.paginator import InvalidPage, Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from metering.messages import Message

PAGE_SIZE = 50
"""Default number of rows on a page of a list."""
SHOWN = 40
"""Characters of a refused value that the message repeats."""


def chosen(request: HttpRequest, name: str, among: Collection[str], usual: str = "") -> str:
    """Return a parameter's value, which must be in `among`; `usual` if the address has none.  Raises Http404."""
    value = request.GET.get(name, "") or usual
    if value and value not in among:
        raise none_of(name, value, among)
    return value


def none_of(name: str, value: str, among: Collection[str]) -> Http404:
    """Return the Http404 for a value that is not in `among`."""
    if not among:
        return Http404(Message("%(name)s %(value)s: there is none", name=name, value=repr(value[:SHOWN])))
    return Http404(Message(
        "%(name)s %(value)s: one of %(names)s", name=name, value=repr(value[:SHOWN]), names=", ".join(sorted(among)[:SHOWN])
    ))  # fmt: skip


def page_shown(request: HttpRequest, items: Sequence[Any] | QuerySet[Any], size: int = 0) -> Page[Any]:
    """Return the requested page of a list, the first by default; `size`: rows of a page, PAGE_SIZE if 0.

    Raises Http404 if there is no such page.
    """
    pages, number = Paginator(items, size or PAGE_SIZE), request.GET.get("page") or "1"
    try:
        return pages.page(number)
    except InvalidPage as error:
        raise Http404(Message(
            "page %(page)s: a number from 1 to %(last)s", page=repr(number[:SHOWN]), last=pages.num_pages
        )) from error  # fmt: skip
