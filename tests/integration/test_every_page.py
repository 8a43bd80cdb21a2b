"""Every page that a person reaches: tables with files, plain words, Chinese that is Chinese, forms that keep what was typed.

The walks of all checks are the same, so they are done once.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import resolve

from billing.invoices.models import Correction
from billing.portal.input_names import NAMES
from tests.full_scenario import PEOPLE, Scenario, build_scenario, pleasant
from tests.page_words import english_in
from tests.site_walk import EACH, Page, Walk, route_of, shortest, walk_as

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
IN_CHINESE = frozenset({"approver", "auditor"})
"""Who reads Chinese, so that each page is asked for once."""
every_reader = pytest.mark.parametrize("who", ["finance", "lead", "admin"])


@pytest.fixture(scope="module")
def house(for_all_tests: Path) -> Scenario:
    return build_scenario(for_all_tests, pleasant)


@pytest.fixture(scope="module")
def walks(house: Scenario) -> dict[str, Walk]:
    return {who: walk_as(who, house, most=EACH, language="zh-hans" if who in IN_CHINESE else "en") for who in PEOPLE}


def client_of(who: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=who))
    return client


# Tables and lists


EXCEPTIONS = {
    "sources/install/": "choices: each is a link to its configuration",
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
    """The tables of a page by the part of the page that they stand in, and whether that part offers files."""

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


@every_reader
def test_every_table_can_be_taken_along(walks: dict[str, Walk], who: str) -> None:
    """Every table of every page leaves it as CSV and XLSX; whoever adds one without a file fails here."""
    found = {}
    for route, page in shortest(walks[who]).items():
        tables = Tables()
        tables.feed(page.source)
        if tables.bare and route not in EXCEPTIONS | WHOLE:
            found[route] = tables.bare
    assert found == {}


def test_the_exceptions_are_pages_that_exist() -> None:
    assert all(resolve(urlsplit("/" + route.replace("<int:pk>", "1")).path).route == route for route in EXCEPTIONS)


EMPTY = re.compile(r"<li>\s*</li>")


@every_reader
def test_no_list_of_links_has_an_empty_place(walks: dict[str, Walk], who: str) -> None:
    assert [page.address for page in shortest(walks[who]).values() if EMPTY.search(page.source)] == []


# Words


ONE_OF_MANY = re.compile(
    r"(?<![\d.,:/-])1 (?:open |more |business )?"
    r"(?:months|days|hours|teams|lines|records|jobs|files|rows|invoices|drafts|runs|documents|units|"
    r"holds|scans|charges|entries|nodes|pods|versions|prices|tokens|allocations|journals|budgets|windows|years)\b"
)
NOT_OURS = ("pre", "textarea")
"""Elements that show what somebody sent or wrote."""


class OurWords(Page):
    """The text of a page but for what others wrote."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside += tag in NOT_OURS

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag in NOT_OURS

    def handle_data(self, data: str) -> None:
        self.text += "" if self.inside else data


@every_reader
def test_no_page_shows_marks_of_its_source_or_a_plural_of_one(walks: dict[str, Walk], who: str) -> None:
    found = {}
    for route, page in shortest(walks[who]).items():
        ours = OurWords(address=page.address)
        ours.feed(page.source)
        text = re.sub(r"\s+", " ", ours.text)
        marks = [text[max(0, at.start() - 60) : at.end() + 40] for at in re.finditer("`", text)]
        odd = marks + [text[max(0, at.start() - 30) : at.end() + 30] for at in ONE_OF_MANY.finditer(text)]
        if odd:
            found[route] = odd
    assert found == {}


FAULTS = frozenset({"prices/workbench/", "prices/workbench/effect/"})
"""Asked without a sheet they name the fields that are missing, in the words of the sheet's own file format."""


def test_english_is_found_and_code_is_not() -> None:
    page = "<p>你好 <b>ended</b> <code>give me all of it</code><input title='token_class'> GPU-h 卡 H800 NVIDIA-H800</p>"
    assert english_in(page) == ["GPU-h 卡 H800 NVIDIA-H800", "ended", "token_class"]


@pytest.mark.parametrize("who", PEOPLE)
def test_no_page_of_any_role_leaves_english_or_an_identifier_on_it(walks: dict[str, Walk], who: str) -> None:
    client, found = client_of(who), {}
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    pages = walks[who].pages.values() if who in IN_CHINESE else shortest(walks[who]).values()
    for page in pages:
        source = page.source if who in IN_CHINESE else client.get(page.address).content.decode()
        if english := english_in(source, NAMES if route_of(page.address) in FAULTS else ()):
            found[page.address] = english
    assert found == {}, "\n".join(f"{address}: {texts}" for address, texts in found.items())


# Forms: each is sent as a browser would send it, with something wrong in each field


TYPED = {"date": "2001-02-03", "number": "-7", "month": "1999-01", "datetime-local": "2001-02-03T04:05"}
"""What is typed into a field of each kind; into a plain one its own name."""


@dataclass
class Form:
    """A form as a browser reads it."""

    action: str
    post: bool
    kept: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    ticked: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    send: tuple[str, str] | None = None
    can_be_sent: bool = False
    values: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What stands in it by name, of every row: texts, ticked boxes and chosen options."""


class Forms(HTMLParser):
    """The forms of a page, each with what is to be typed into it and with what stands in it."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.found = address, list[Form]()
        self.select = self.area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "form":
            action = urljoin(self.address, facts.get("action", "") or self.address)
            self.found.append(Form(action, facts.get("method", "").lower() == "post"))
        elif self.found:
            self._part(self.found[-1], tag, facts)

    def _part(self, form: Form, tag: str, facts: dict[str, str]) -> None:
        name, value, kind = facts.get("name", ""), facts.get("value", ""), facts.get("type", "text")
        form.can_be_sent |= tag == "button"
        if tag == "button" and (name or "formaction" in facts) and form.send is None:
            form.send = (name, value)
            form.action = urljoin(form.action, facts.get("formaction", form.action))
        elif tag == "input" and kind == "hidden":
            form.kept[name] = value
        elif tag == "input" and kind in ("checkbox", "radio"):
            form.ticked[name] = value or "on"
            if "checked" in facts:
                form.values[name].add(value or "on")
        elif tag == "input" and kind not in ("file", "password") and name:  # a secret never comes back
            form.typed[name] = TYPED.get(kind, f"typed {name}")
            form.values[name].add(value)
        elif tag == "textarea":
            self.area = name
            form.typed[name] = f"typed {name}"
        elif tag == "select":
            self.select = name
        elif tag == "option" and self.select:
            form.chosen[self.select] = facts["value"] if "value" in facts else form.chosen.get(self.select, "")
            if "selected" in facts:
                form.values[self.select].add(value)

    def handle_endtag(self, tag: str) -> None:
        self.select = "" if tag == "select" else self.select
        self.area = "" if tag == "textarea" else self.area

    def handle_data(self, data: str) -> None:
        if self.area:
            self.found[-1].values[self.area].add(data.removeprefix("\n"))


def forms_of(page: str, address: str) -> list[Form]:
    forms = Forms(address)
    forms.feed(page)
    return [form for form in forms.found if form.post and form.typed and form.can_be_sent]


def sent(client: Client, form: Form) -> tuple[int, str]:
    """What a form with something in every field is answered; nothing of it stays."""
    filled = {**form.kept, **form.ticked, **form.chosen, **form.typed}
    if form.send is not None:
        filled[form.send[0]] = form.send[1]
    with transaction.atomic():
        answer = client.post(form.action, filled)
        transaction.set_rollback(True)
    return answer.status_code, answer.content.decode()


def lost(form: Form, answer: str) -> list[str]:
    """Names of fields that come back without what was sent in them."""
    wanted = {**form.ticked, **form.chosen, **form.typed}
    kept = {name: value for name, value in form.kept.items() if name != "csrfmiddlewaretoken"}
    back = [
        again for again in forms_of(answer, form.action)
        if set(again.typed) == set(form.typed) and kept.items() <= again.kept.items()
    ]  # fmt: skip
    without = [[name for name in wanted if wanted[name] not in again.values[name]] for again in back]
    return min(without, key=len, default=["the form is gone"])


@pytest.mark.parametrize("who", ["finance", "lead", "approver", "admin"])
def test_nothing_that_was_typed_is_lost(walks: dict[str, Walk], who: str) -> None:
    """A form that is refused comes back with everything that was typed: nobody types an evening's work twice."""
    client, seen, faults = client_of(who), set(), {}
    for address, page in walks[who].pages.items():
        for form in forms_of(page.source, address):
            known = (route_of(form.action), *sorted(form.typed), form.kept.get("step"))
            if known in seen:
                continue
            seen.add(known)
            status, answer = sent(client, form)
            if status != 302 and (names := lost(form, answer)):
                faults[f"{status} {known[0]}"] = names
    assert len(seen) >= 3
    assert faults == {}


def test_a_wrong_amount_is_told_beside_its_line_and_the_others_stand(house: Scenario) -> None:
    client = client_of("finance")
    asked = {
        "amount-1": "0.50", "amount-2": "1o", "whole": ["3", "4"], "code": "goodwill", "reason": "the rack was off",
        "evidence": "INC-9", "rebill_price": "9,50x", "rebill_quantity": "2.5",
    }  # fmt: skip
    answer = client.post(f"/corrections/new/{house.invoice.pk}/", asked)
    text = answer.content.decode()
    assert (answer.status_code, Correction.objects.filter(reason="the rack was off").exists()) == (422, False)
    told = {
        "amount-2": "line 2 &#x27;1o&#x27;: is not a decimal",
        "rebill_price": "Bill ticked lines again at this price &#x27;9,50x&#x27;: is not a decimal"
    }  # fmt: skip
    assert all(text.count(sentence) == 2 for sentence in told.values())  # above the form, and beside the field
    assert set(re.findall(r'name="([\w-]+)"[^>]*aria-invalid="true"', text)) == set(told)
    back = next(form for form in forms_of(text, "/") if "amount-1" in form.typed)
    assert {name: back.values[name] for name in asked} == {
        name: set(value) if isinstance(value, list) else {value} for name, value in asked.items()
    }
