"""The one text of a document: the bytes that the standard library gives with sorted keys, no spaces and UTF-8 as it is."""

import json
import sys

from hypothesis import given
from hypothesis import strategies as st

from billing.invoices.lines import numbered_document, numbered_text
from billing.runtime.canonical_json import canonical_json

TEXTS = st.text(max_size=10)
DOCUMENTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


def plain(document: object) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@given(DOCUMENTS)
def test_it_is_that_of_the_standard_library(document: dict[str, object]) -> None:
    assert canonical_json(document) == plain(document)


def test_every_character_is_written_as_the_standard_library_writes_it() -> None:
    for first in range(0, sys.maxunicode, 0x1000):
        text = "".join(chr(code) for code in range(first, first + 0x1000) if not 0xD800 <= code < 0xE000)
        assert canonical_json({"text": text, text: None}) == plain({"text": text, text: None})


@given(DOCUMENTS, TEXTS, TEXTS)
def test_a_draft_gets_its_number_as_if_it_were_written_anew(draft: dict[str, object], number: str, before: str) -> None:
    anew = canonical_json(numbered_document(draft, number=number, previous_sha256=before))
    assert numbered_text(canonical_json(draft), number=number, previous_sha256=before) == anew
