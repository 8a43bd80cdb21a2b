"""Search of every page: menu entries, teams, documents, jobs and models that its reader may see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext

from billing.explorer.labels import DIMENSIONS_MANY, name_of
from billing.explorer.query import Query, preset
from billing.explorer.selectors import Explorer
from billing.portal.document_search import documents_matching
from billing.portal.labels import LABELS
from billing.portal.navigation import Section
from billing.tenancy.models import Team

MOST: Final = 6
"""Most hits of each kind that are shown."""
FEWEST: Final = 2
"""Fewest characters that a search needs."""
RANGE: Final = "last-90-days"
"""Range whose jobs and models are found."""
NAMES_READ: Final = 200_000
"""Most jobs or models that are searched; of more none is offered: the explorer finds them by its filter."""


class Hit(NamedTuple):
    """Result with its page; `under`: text that tells it from others."""

    text: str
    under: str
    address: str


@dataclass(frozen=True)
class Hits:
    """Results of one kind, at most MOST; `more`: there are others."""

    name: str
    title: str
    shown: Sequence[Hit]
    more: bool

    @classmethod
    def of(cls, name: str, title: object, found: Iterable[Hit]) -> "Hits":
        """Keep the first MOST of the results found."""
        hits = list(found)
        return cls(name, str(title), hits[:MOST], len(hits) > MOST)


def everything_matching(
    text: str, *, menu: Iterable[Section], teams: QuerySet[Team], now: datetime, zone: str
) -> list[Hits]:
    """Return the hits that every word of `text` matches, by kind; kinds without a hit are left out.

    menu: the menu of the reader. teams: all that the reader may see, which also decides on documents, jobs and models.
    """
    words = text.casefold().split()
    if len(text.strip()) < FEWEST:
        return []
    names = dict(teams.order_by("code").values_list("code", "name"))
    found = [
        Hits.of("pages", gettext("Menu"), _pages(menu, words)),
        Hits.of("teams", DIMENSIONS_MANY["team"], _teams(names, words)),
        Hits.of("documents", gettext("Documents"), _documents(teams, text)),
        *_used(names, words, now, zone),
    ]
    return [hits for hits in found if hits.shown]


def _fits(words: Sequence[str], *names: str) -> bool:
    return all(any(word in name.casefold() for name in names) for word in words)


def _pages(menu: Iterable[Section], words: Sequence[str]) -> list[Hit]:
    entries = [entry for section in menu for entry in section.entries if _fits(words, str(entry.label))]
    return [Hit(str(entry.label), "", reverse(f"portal:{entry.page}")) for entry in entries]


def _teams(names: Mapping[str, str], words: Sequence[str]) -> list[Hit]:
    return [
        Hit(name or code, code if name else "", reverse("portal:team", args=[code]))
        for code, name in names.items() if _fits(words, code, name)
    ]  # fmt: skip


def _documents(teams: QuerySet[Team], text: str) -> list[Hit]:
    kinds = LABELS["document_kind"]
    return [
        Hit(
            item.number or gettext("Draft of %(month)s") % {"month": item.month},
            " · ".join((str(kinds.get(item.kind, item.kind)), item.team.name or item.team.code, item.month)), item.address,
        )
        # one more than is shown, so that `more` is known
        for item in documents_matching(teams, text, most=MOST + 1)
    ]  # fmt: skip


def _used(names: Mapping[str, str], words: Sequence[str], now: datetime, zone: str) -> list[Hits]:
    """Return jobs and models that the teams used lately, each with the address of its cost."""
    reader = Explorer(frozenset(names), now, zone, names)
    span = preset(RANGE, reader.today, settings.FISCAL_YEAR_START)
    query = Query(span.first, span.last, RANGE, step="week")
    known = reader.options(query, ("job", "model"), NAMES_READ)
    return [
        Hits.of(kind, DIMENSIONS_MANY[kind], (_cost_of(query, kind, one) for one in values or () if _fits(words, one)))
        for kind, values in known.items()
    ]


def _cost_of(query: Query, kind: str, value: str) -> Hit:
    name = name_of(kind, value, {})
    address = replace(query, by=(kind,)).only(**{kind: value}).address
    return Hit(name.text, name.under, f"{reverse('portal:explorer')}?{address}")
