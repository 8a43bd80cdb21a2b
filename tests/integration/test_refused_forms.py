"""A form that is refused comes back with everything that was typed: nobody types an evening's work twice.

Every form of every page that a person reaches is sent as a browser would send it, with something wrong in each field.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import resolve

from billing.invoices.models import Correction
from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import EACH, walk_as

pytestmark = pytest.mark.django_db
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
    """What is in it by name, of every row: texts, ticked boxes and chosen options."""


class Forms(HTMLParser):
    """The forms of a page, each with what is to be typed into it and with what is in it."""

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
        elif tag == "input" and kind != "file" and name:
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


def route_of(address: str) -> str:
    return resolve(urlsplit(address).path).route


@pytest.mark.parametrize("who", ["finance", "lead", "approver", "admin"])
def test_nothing_that_was_typed_is_lost(tmp_path: Path, who: str) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    client = Client()
    client.force_login(User.objects.get(username=who))
    seen, faults = set(), {}
    for address, page in walk_as(who, scenario, most=EACH).pages.items():
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


def test_a_wrong_amount_is_reported_beside_its_line_and_the_others_stand(tmp_path: Path) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    client = Client()
    client.force_login(User.objects.get(username="finance"))
    asked = {
        "amount-1": "0.50", "amount-2": "1o", "whole": ["3", "4"], "code": "goodwill", "reason": "the rack was off",
        "evidence": "INC-9", "rebill_price": "9,50x", "rebill_quantity": "2.5",
    }  # fmt: skip
    answer = client.post(f"/corrections/new/{scenario.invoice.pk}/", asked)
    text = answer.content.decode()
    assert (answer.status_code, Correction.objects.filter(reason="the rack was off").exists()) == (422, False)
    reported = {
        "amount-2": "line 2 &#x27;1o&#x27;: is not a decimal",
        "rebill_price": "Bill ticked lines again at this price &#x27;9,50x&#x27;: is not a decimal"
    }  # fmt: skip
    assert all(text.count(sentence) == 2 for sentence in reported.values())  # above the form, and beside the field
    assert set(re.findall(r'name="([\w-]+)"[^>]*aria-invalid="true"', text)) == set(reported)
    back = next(form for form in forms_of(text, "/") if "amount-1" in form.typed)
    assert {name: back.values[name] for name in asked} == {
        name: set(value) if isinstance(value, list) else {value} for name, value in asked.items()
    }
