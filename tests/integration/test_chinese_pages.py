"""Chinese pages are Chinese: no English sentence is left on them, and the words of the trade are the same everywhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import gettext, override

from billing.invoices.documents import labels
from billing.invoices.labels import CORRECTION_REASON, NOTE_STYLE
from billing.rating.labels import LINE_KIND, LINE_REASON, TOKEN_CLASS
from tests.catalogue import PO, read_po
from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import one_of_each

ENGLISH = re.compile(r"(?:\b[A-Za-z][a-z']+\b[ ,;:]+){2,}\b[a-z']{2,}\b")
GIVEN = ("Everything of NLP", "Li Mei", "NLP Research", "conflict tests via usage/tokens")
"""Names that people and programs of the installation gave."""
FAULTS = frozenset({"prices/workbench/effect/"})
"""Asked without a sheet it names the fields that are missing, in the English of the sheet's own file format."""
CODE = frozenset({"code", "pre", "textarea", "script", "style", "option"})
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "rect"})


class Words(HTMLParser):
    """What a page says in words: not code, not what is marked as of another language."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.said: list[str] = []

    @property
    def silent(self) -> bool:
        return any(skipped for _tag, skipped in self.open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "html":
            facts.pop("lang", None)
        if not self.silent:
            self.said += [facts[name] for name in ("aria-label", "placeholder", "title", "alt") if facts.get(name)]
        if tag not in VOID:
            code = tag in CODE or "mono" in facts.get("class", "").split() or "lang" in facts
            self.open.append((tag, code))

    def handle_endtag(self, tag: str) -> None:
        while self.open and tag not in VOID:
            if self.open.pop()[0] == tag:
                break

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.said.append(data)


def english_in(page: str) -> list[str]:
    words = Words()
    words.feed(page)
    text = "\n".join(" ".join(said.split()) for said in words.said)
    for name in GIVEN:
        text = text.replace(name, "·")
    return [found.group() for found in ENGLISH.finditer(text)]


def test_english_is_found_and_code_is_not() -> None:
    page = "<p>你好 <b>the month has ended</b> <code>give me all of it</code><input title='what is this'></p>"
    assert sorted(english_in(page)) == ["the month has ended", "what is this"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who", ["finance", "admin", "lead"])
def test_no_page_of_a_full_installation_leaves_english_on_it(tmp_path: Path, who: str) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    client = Client()
    client.force_login(User.objects.get(username=who))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    found = {}
    for route, address in one_of_each(who, scenario).items():
        english = english_in(client.get(address).content.decode())
        if english and route not in FAULTS:
            found[route] = english
    assert found == {}, "\n".join(f"{route}: {texts}" for route, texts in found.items())


TERMS = {"credit note": "贷记单", "price version": "价格版本", "invoice": "账单", "quarantine": "隔离", "waive": "豁免"}
NEVER = (
    "发票", "信用单", "信用票据", "红字", "价格表版本", "价目版本", "价目表", "智能体", "帐", "贷项", "签发", "争议", "商誉",
)  # fmt: skip
"""Other words for the same things, and the wrong character of 账."""


def test_the_words_of_the_trade_are_the_same_everywhere() -> None:
    texts = read_po(PO.read_text(encoding="utf-8"))
    other = [
        (term, message[0]) for message, chinese in texts.items() for term, wanted in TERMS.items()
        if re.search(rf"\b{term}", " ".join(message).lower()) and wanted not in chinese and "`" not in message[0]
    ]  # fmt: skip
    assert other == []
    assert [(word, chinese) for chinese in texts.values() for word in NEVER if word in chinese] == []


SAME = (
    (labels.KINDS, LINE_KIND, ("efficiency", "interruption", "idle", "shared", "commitment", "credit")),
    (labels.TOKEN_CLASSES, TOKEN_CLASS, tuple(TOKEN_CLASS)),
    (labels.REASONS, LINE_REASON, tuple(labels.REASONS)),
    (labels.STYLES, NOTE_STYLE, tuple(labels.STYLES)),
    (labels.NOTE_REASONS, CORRECTION_REASON, tuple(labels.NOTE_REASONS)),
)
"""Codes that documents and pages both put into words."""
NAMES = ("Invoice", "Credit note", "Rebill", "Price version", "Corrects", "Issued by", "Billed to")


@pytest.mark.parametrize("table", SAME, ids=lambda table: table[2][0])
def test_documents_and_pages_put_a_code_into_the_same_words(table: Any) -> None:
    words, shown, codes = table
    with override("zh-hans"):
        assert {code: str(shown[code]) for code in codes} == {code: words[code][0] for code in codes}


def test_documents_and_pages_name_things_alike() -> None:
    of_documents = {english: chinese for chinese, english in labels.WORDS.values() if english != "Corrects"}
    of_documents["Corrects"] = labels.WORDS["corrects_invoice"][0]
    with override("zh-hans"):
        assert {name: gettext(name) for name in NAMES} == {name: of_documents[name] for name in NAMES}
    texts = [chinese for table in (labels.WORDS, labels.KINDS, labels.MARKS) for chinese, _ in table.values()]
    texts += [chinese.replace("不是增值税发票", "") for chinese, _ in labels.SENTENCES.values()]
    assert [(term, text) for text in texts for term in NEVER if term in text] == []
