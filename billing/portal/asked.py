"""What a page reads of its address. A value that is none is a page that says so, by name: it is never passed over.

An empty value asks nothing, as a form sends it. What a page does not know at all stays: links of mails and of other
programs add parameters of their own.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.core.paginator import InvalidPage, Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from metering.messages import Message

PAGE_SIZE = 50
"""So many rows a page of a list usually has."""
SHOWN = 40
"""Characters of a value that a person is shown again."""


def chosen(request: HttpRequest, name: str, among: Collection[str], usual: str = "") -> str:
    """The value of a parameter that has one of a few, `usual` where the address says none.  Raises Http404."""
    value = request.GET.get(name, "") or usual
    if value and value not in among:
        raise none_of(name, value, among)
    return value


def none_of(name: str, value: str, among: Collection[str]) -> Http404:
    """The answer to a value that is none of those that there are."""
    if not among:
        return Http404(Message("%(name)s %(value)s: there is none", name=name, value=repr(value[:SHOWN])))
    return Http404(Message(
        "%(name)s %(value)s: one of %(names)s", name=name, value=repr(value[:SHOWN]), names=", ".join(sorted(among)[:SHOWN])
    ))  # fmt: skip


def page_shown(request: HttpRequest, items: Sequence[Any] | QuerySet[Any], size: int = 0) -> Page[Any]:
    """The page of a list that is asked for, else the first; `size`: of other than so many rows as usual.

    Raises Http404 for one that there is not.
    """
    pages, number = Paginator(items, size or PAGE_SIZE), request.GET.get("page") or "1"
    try:
        return pages.page(number)
    except InvalidPage as error:
        raise Http404(Message(
            "page %(page)s: a number from 1 to %(last)s", page=repr(number[:SHOWN]), last=pages.num_pages
        )) from error  # fmt: skip
