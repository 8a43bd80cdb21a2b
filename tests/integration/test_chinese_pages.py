"""Chinese pages are Chinese: no English sentence is left on them, and the words of the trade are the same everywhere."""

import re
from typing import Any

import pytest
from django.utils.translation import gettext, override

from billing.invoices.documents import labels
from billing.invoices.labels import CORRECTION_REASON, NOTE_STYLE
from billing.rates.labels import TOKEN_CLASS
from billing.rating.labels import LINE_KIND, LINE_REASON
from tests.catalogue import PO, read_po

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
