"""Invoice as PDF/A-2b, set by Typst from ``templates/invoice/``."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Literal

import typst

from billing.invoices.documents.content import DocumentError, Invoice, mark_of, mark_on, read_document
from billing.invoices.documents.fitting import TEMPLATES
from billing.invoices.documents.labels import check_language
from billing.invoices.documents.layout import Printing, page_content
from billing.invoices.documents.text import accented

PDF_STANDARD: Literal["a-2b"] = "a-2b"


@functools.cache
def packaged_fonts() -> typst.Fonts:
    """Return Noto Sans CJK (SIL Open Font License 1.1) from its package, and Typst's fonts; read once a process (10 ms).

    Fonts of the system are ignored even if they are better: the same invoice must give the same bytes everywhere.
    """
    return typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=True, font_paths=[str(resources.files("manimgx_fonts_cjk"))]
    )


class PdfRenderer:
    """Renderer of many documents with one Typst compiler. Not thread-safe; each thread makes its own."""

    def __init__(self) -> None:
        self._compiler = typst.Compiler(
            str(TEMPLATES / "invoice.typ"),
            root=str(TEMPLATES),
            font_paths=packaged_fonts(),
            ignore_system_fonts=True,
        )

    def render(
        self,
        document: Mapping[str, Any],
        *,
        sha256: str | None,
        issued_at: datetime | None,
        language: str = "zh-en",
        status: str = "issued",
        due: datetime | None = None,
    ) -> bytes:
        """Return one document as PDF; equal arguments give equal bytes.

        document: canonical invoice ``suanpan/invoice/1``.  sha256: hash of its canonical JSON, null before issue.
        issued_at: aware moment of issue, the date of the PDF; null before issue (then the end of the period).
        language: ``zh-en``, ``zh`` or ``en``.  status: lifecycle state; before issue the page carries a DRAFT mark.
        due: the midnight until which lines can be disputed, printed as the day before it; null prints nothing.
        Raises DocumentError, UnbalancedDocumentError, ValueError (language, status, naive moment).
        """
        invoice = read_document(document)
        _require_issue_facts(invoice, sha256, issued_at, status)
        printing = Printing(sha256, issued_at, check_language(language), mark_on(status, shadow=invoice.shadow), due)
        date = issued_at or datetime.fromisoformat(invoice.period.end_utc)
        try:
            return self._compile(page_content(invoice, printing), date)
        except typst.TypstError:
            # PDF/A refuses a character without a glyph (an emoji in a name): spell those out, compile once more.
            characters = set(json.dumps(document, ensure_ascii=False, default=str))
            undisplayable = frozenset(char for char in characters if not _displayable(char))
            if not undisplayable:
                raise
            return self._compile(page_content(invoice, printing, undisplayable), date)

    def _compile(self, content: Mapping[str, Any], date: datetime) -> bytes:
        content = {**content, "accented": accented(json.dumps(content, ensure_ascii=False))}
        # passed as data: text from outside never becomes Typst source
        pdf = self._compiler.compile(
            format="pdf",
            sys_inputs={
                "invoice": json.dumps(content, ensure_ascii=False),
                "date": f"{date.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
            },
            pdf_standards=PDF_STANDARD,
            timestamp=int(date.timestamp()),
        )
        if not isinstance(pdf, bytes):
            raise TypeError(f"typst gave {type(pdf).__name__}, expected one PDF")
        return pdf


def _require_issue_facts(invoice: Invoice, sha256: str | None, issued_at: datetime | None, status: str) -> None:
    if issued_at is not None and issued_at.tzinfo is None:
        raise ValueError(f"invoice {invoice.number!r}: issued_at {issued_at} has no time zone")
    if mark_of(status) is None and (invoice.number is None or sha256 is None or issued_at is None):
        raise DocumentError(f"invoice {invoice.number!r}: an issued document needs number, sha256 and issued_at")


@functools.lru_cache(maxsize=4096)
def _displayable(char: str) -> bool:
    """Return True if Typst can draw the character with the packaged fonts; a compilation of a few ms each."""
    source = b'#set text(font: "Noto Sans CJK SC")\n#sys.inputs.text'
    try:
        typst.compile(
            source,
            format="pdf",
            font_paths=packaged_fonts(),
            ignore_system_fonts=True,
            sys_inputs={"text": char},
            pdf_standards=PDF_STANDARD,
            timestamp=0,
        )
    except typst.TypstError:
        return False
    return True
