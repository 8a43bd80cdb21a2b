"""The words that docs/glossary.md retires are in no page, no mail and no document."""

import re
from pathlib import Path

import pytest

from tests.catalogue import PO

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
DOCUMENTS = [
    ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md")),
    *sorted(path for package in ("billing", "metering", "pricing") for path in (ROOT / package).rglob("README.md")),
]  # fmt: skip
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|<[^>]*>", re.DOTALL)
"""Code, addresses of links and elements of HTML, whose names are not the glossary's."""


def retired() -> list[str]:
    rows = GLOSSARY.read_text().partition("## Not used")[2].splitlines()[4:]
    return [word.strip() for row in rows for word in row.split("|")[1].split(",")]


def found_in(text: str) -> list[str]:
    words = "|".join(map(re.escape, retired()))
    return re.findall(rf"(?<![\w-])(?:{words})s?(?![\w-])", text, re.IGNORECASE)


def test_a_retired_word_is_found() -> None:
    assert retired()[:3] == ["door", "house", "rung"]
    assert found_in("Two doors of a house; in-house, a doorstep, standing.") == ["doors", "house", "standing"]


def test_no_text_of_a_page_or_mail_has_a_retired_word() -> None:
    texts = re.findall(r'^msgid(?:_plural)? "(.*)"$', PO.read_text(), re.MULTILINE)
    assert len(texts) > 3000
    found = [text for text in texts if found_in(re.sub(r"%\(\w+\)s", "", NOT_PROSE.sub("", text)))]
    assert found == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_has_a_retired_word(path: Path) -> None:
    text = path.read_text()
    if path == GLOSSARY:
        text = text.partition("## Not used")[0]
    assert found_in(NOT_PROSE.sub("", text)) == []
