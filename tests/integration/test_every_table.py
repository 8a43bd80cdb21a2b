"""Every table of every page leaves it as CSV and XLSX; whoever adds one without a file fails here."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve

from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import one_of_each

pytestmark = pytest.mark.django_db(transaction=True)
EXCEPTIONS = {
    "invoices/<int:pk>/": "the whole document is a file: PDF, Excel, CSV, JSON",
    "notes/<int:pk>/": "the whole document is a file: PDF, Excel, CSV, JSON",
    "disputes/new/<int:pk>/": "a form: the lines of an invoice to tick, whose file is on the invoice",
    "corrections/new/<int:pk>/": "a form: the lines of an invoice to correct, whose file is on the invoice",
    "prices/drafts/new/": "a form: rows of inputs",
    "prices/drafts/<int:pk>/edit/": "a form: rows of inputs",
}


WHOLE = {"teams/<str:code>/": "the lines of all sections are one file, at the top of the page"}
"""Pages whose sections are parts of one table."""


@dataclass
class Tables(HTMLParser):
    """The tables of a page by the part of the page that they are in, and whether that part offers files."""

    bare: list[str] = field(default_factory=list)
    parts: list[list[object]] = field(default_factory=list)
    words: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "section":
            self.parts.append([0, set(), facts.get("aria-labelledby", "") or facts.get("aria-label", "")])
        elif tag == "table" and "inputs" not in facts.get("class", ""):
            if self.parts:
                self.parts[-1][0] += 1  # type: ignore[operator]
            else:
                self.bare.append("a table outside any section")
        elif tag == "a" and self.parts:
            for kind in ("csv", "xlsx"):
                if f"as={kind}" in facts.get("href", ""):
                    self.parts[-1][1].add((kind, facts["href"]))  # type: ignore[attr-defined]

    def handle_endtag(self, tag: str) -> None:
        if tag == "section" and self.parts:
            tables, files, name = self.parts.pop()
            kinds = {kind for kind, _href in files}  # type: ignore[attr-defined]
            if tables and kinds != {"csv", "xlsx"}:
                self.bare.append(str(name))


@pytest.mark.parametrize("who", ["finance", "lead", "admin"])
def test_every_table_can_be_taken_along(tmp_path: Path, who: str) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    client = Client()
    client.force_login(User.objects.get(username=who))
    found = {}
    for route, address in one_of_each(who, scenario).items():
        tables = Tables()
        tables.feed(client.get(address).content.decode())
        if tables.bare and route not in EXCEPTIONS | WHOLE:
            found[route] = tables.bare
    assert found == {}


def test_the_exceptions_are_pages_that_exist() -> None:
    assert all(resolve(urlsplit("/" + route.replace("<int:pk>", "1")).path).route == route for route in EXCEPTIONS)
