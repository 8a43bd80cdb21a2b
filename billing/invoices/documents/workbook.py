"""Invoice as an Excel workbook: a summary sheet and the lines, sums as live formulas."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.utility import xl_rowcol_to_cell
from xlsxwriter.worksheet import Worksheet

from billing.invoices.documents.content import (
    Invoice,
    Line,
    cost_centers_text,
    known_facts,
    lines_of,
    mark_on,
    read_document,
    sum_of,
)
from billing.invoices.documents.labels import (
    KINDS,
    MARKS,
    NOTE_REASONS,
    REASONS,
    SENTENCES,
    STYLES,
    TITLES,
    TOKEN_CLASSES,
    WORDS,
    Language,
    check_language,
    choose,
    inline,
    named,
)
from billing.invoices.documents.layout import Printing, issue_date, last_day
from billing.invoices.documents.text import visible
from pricing.money import amount_places

INK, SOFT, TINT, CINNABAR = "#1B2027", "#59616C", "#F7F5F1", "#A02C22"


@dataclass(frozen=True)
class Column:
    """Column of the lines sheet: label key, attribute of the line, format name, width in characters."""

    label: str
    attribute: str
    style: str
    width: float


@dataclass(frozen=True)
class Look:
    """Cell formats and the words of one language."""

    styles: dict[str, Format]
    language: Language

    def word(self, key: str) -> str:
        return inline(choose(WORDS[key], self.language))

    def code(self, table: dict[str, tuple[str, str]], key: str) -> str:
        return visible(inline(named(table, key, self.language)))


COLUMNS = (
    Column("position", "position", "position", 5),
    Column("kind", "kind", "text", 22),
    Column("cluster", "cluster", "text", 12),
    Column("namespace", "namespace", "text", 22),
    Column("consumer", "consumer", "text", 20),
    Column("sku_or_model", "sku", "text", 24),
    Column("token_class", "token_class", "text", 20),
    Column("quantity", "quantity", "quantity", 18),
    Column("unit", "unit", "after", 12),
    Column("unit_price", "unit_price", "price", 12),
    Column("amount", "amount", "money", 18),
    Column("price_version", "price_version", "after", 13),
    Column("policy", "policy", "text", 14),
    Column("reason", "reason", "text", 14),
    Column("jobs", "jobs", "whole", 8),
    Column("charge_class", "charge_class", "after", 13),
    Column("charge_period", "charge_period", "text", 13),
    Column("energy_kwh", "energy_kwh", "energy", 12),
    Column("context", "context", "text", 18),
)
NOTE_COLUMNS = (
    *COLUMNS, Column("note_style", "style", "text", 22), Column("credits_line", "credited_line", "text", 30)
)  # fmt: skip
AMOUNT = next(index for index, column in enumerate(COLUMNS) if column.attribute == "amount")
HEADS = {"position": "head", "text": "head", "after": "head_after"}
TRANSLATED = {"kind": KINDS, "token_class": TOKEN_CLASSES, "reason": REASONS, "style": STYLES}


def render_xlsx(
    document: Mapping[str, Any],
    *,
    sha256: str | None = None,
    issued_at: datetime | None = None,
    language: str = "zh-en",
    status: str = "issued",
    due: datetime | None = None,
) -> bytes:
    """Return one invoice as a workbook; equal arguments give equal bytes.

    Two sheets: the summary (document facts, subtotal of each kind, total) and the lines grouped by kind under a frozen
    header. Subtotals and total are SUM formulas with their value stored, so that viewers that do not calculate show it.
    Names are always written as text, never as formulas or links.
    Raises DocumentError, UnbalancedDocumentError, ValueError for an unknown language or status.
    """
    invoice = read_document(document)
    chosen = check_language(language)
    mark = mark_on(status, shadow=invoice.shadow)
    file = io.BytesIO()
    as_text = dict.fromkeys(("strings_to_formulas", "strings_to_urls", "strings_to_numbers"), False)
    book = xlsxwriter.Workbook(file, {"in_memory": True, **as_text})
    look = Look(_styles(book), chosen)
    book.set_properties(_properties(invoice, issued_at, look))
    summary = book.add_worksheet(look.word(TITLES[invoice.kind]))
    lines = book.add_worksheet(look.word("lines_sheet"))
    totals = _write_lines(lines, invoice, look)
    references = {kind: f"='{lines.get_name()}'!{_cell(row)}" for kind, row in totals.items()}
    facts = _facts(invoice, Printing(sha256, issued_at, chosen, mark, due), look)
    _write_summary(summary, invoice, facts, references, look)
    book.close()
    return file.getvalue()


def _properties(invoice: Invoice, issued_at: datetime | None, look: Look) -> dict[str, Any]:
    # not the clock: equal arguments give equal bytes
    created = issued_at or datetime.fromisoformat(invoice.period.end_utc)
    return {
        "title": f"{look.word(TITLES[invoice.kind])} {invoice.number or ''}".strip(),
        "author": visible(invoice.issuer.name),
        "created": created.astimezone(UTC).replace(tzinfo=None, microsecond=0),
    }


def _styles(book: xlsxwriter.Workbook) -> dict[str, Format]:
    digits = f"#,##0.{'0' * amount_places()}".rstrip(".")
    money = f"{digits};[Red]-{digits}"
    base = {"font_size": 10, "font_color": INK, "valign": "vcenter"}
    sums = {"bold": True, "top": 1}
    total = {"bold": True, "font_size": 12, "top": 2, "bottom": 6}
    head = {"bold": True, "text_wrap": True, "bg_color": TINT, "bottom": 1, "top": 2, "valign": "top"}
    shapes: dict[str, dict[str, Any]] = {
        "text": {},
        "after": {"indent": 1},
        "position": {"font_color": SOFT, "align": "left"},
        "whole": {"num_format": "0"},
        "quantity": {"num_format": "#,##0.000000"},
        "price": {"num_format": "#,##0.0000;[Red]-#,##0.0000"},
        "energy": {"num_format": "#,##0.0##"},
        "money": {"num_format": money},
        "head": head,
        "head_right": {**head, "align": "right"},
        "head_after": {**head, "indent": 1},
        "sum_label": sums,
        "sum": {**sums, "num_format": money},
        "total_label": total,
        "total": {**total, "num_format": money},
        "title": {"bold": True, "font_size": 20},
        "mark": {"bold": True, "font_color": CINNABAR},
        "label": {"font_color": SOFT},
        "note_label": {"font_color": SOFT, "valign": "top"},
        "note": {"text_wrap": True, "valign": "top"},
    }  # fmt: skip
    return {name: book.add_format({**base, **shape}) for name, shape in shapes.items()}


# ---- lines ---------------------------------------------------------------------------------------------------------


def _write_lines(sheet: Worksheet, invoice: Invoice, look: Look) -> dict[str, int]:
    """Write the table of lines; return the row (from 0) of each kind's subtotal."""
    columns = COLUMNS if invoice.kind == "invoice" else NOTE_COLUMNS
    _set_up_lines(sheet, columns, look)
    row, totals = 1, {}
    for subtotal in invoice.subtotals:
        first = row
        for line in lines_of(invoice, subtotal.kind):
            _write_line(sheet, row, line, columns, look)
            row += 1
        label = f"{look.code(KINDS, subtotal.kind)} {look.word('subtotal')}"
        formula = f"=SUM({_cell(first)}:{_cell(row - 1)})" if row > first else "=0"
        _write_sum(sheet, row, label, formula, subtotal.amount, (look.styles["sum_label"], look.styles["sum"]))
        totals[subtotal.kind] = row
        row += 2
    formula = f"=SUM({','.join(_cell(total) for total in totals.values())})" if totals else "=0"
    label = visible(f"{look.word('total')} {invoice.currency}")
    _write_sum(sheet, row, label, formula, invoice.total, (look.styles["total_label"], look.styles["total"]))
    return totals


def _set_up_lines(sheet: Worksheet, columns: tuple[Column, ...], look: Look) -> None:
    for index, column in enumerate(columns):
        head = look.styles[HEADS.get(column.style, "head_right")]
        sheet.set_column(index, index, column.width)
        sheet.write_string(0, index, "\n".join(choose(WORDS[column.label], look.language)), head)
    sheet.set_row(0, 32)
    sheet.freeze_panes(1, 2)
    _set_up_print(sheet)
    sheet.repeat_rows(0)


def _set_up_print(sheet: Worksheet) -> None:
    sheet.set_paper(9)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    sheet.hide_gridlines(2)
    sheet.set_footer("&L&F&R&P / &N")


def _write_line(sheet: Worksheet, row: int, line: Line, columns: tuple[Column, ...], look: Look) -> None:
    for index, column in enumerate(columns):
        value = getattr(line, column.attribute)
        style = look.styles[column.style]
        if isinstance(value, str):
            shown = look.code(TRANSLATED.get(column.attribute, {}), value)
            sheet.write_string(row, index, shown, style)
        elif value is not None:
            # a workbook stores binary floats; the cell format shows the decimals
            sheet.write_number(row, index, float(value), style)


def _write_sum(
    sheet: Worksheet, row: int, label: str, formula: str, value: Decimal, styles: tuple[Format, Format]
) -> None:
    for index in range(AMOUNT):
        sheet.write_blank(row, index, None, styles[0])
    sheet.write_string(row, 1, label, styles[0])
    sheet.write_formula(row, AMOUNT, formula, styles[1], float(value))


def _cell(row: int) -> str:
    return str(xl_rowcol_to_cell(row, AMOUNT))


# ---- summary -------------------------------------------------------------------------------------------------------


def _facts(invoice: Invoice, printing: Printing, look: Look) -> list[tuple[str, str]]:
    """Return label and text of each fact of the document, in the order of the PDF."""
    period, recipient, at_issue = invoice.period, invoice.recipient, look.word("at_issue")
    rows = [
        *([("status", look.code(MARKS, printing.mark))] if printing.mark else []),
        ("number", invoice.number or at_issue),
        ("issue_date", issue_date(printing.issued_at, period) or at_issue),
        *([("dispute_until", last_day(printing.due, period))] if printing.due else []),
        ("issuer", invoice.issuer.name),
        *known_facts(invoice.issuer, ("legal_entity", "address", "tax_id", "contact")),
        ("recipient", recipient.name or recipient.team),
        ("team", recipient.team),
        ("cost_center", cost_centers_text(recipient)),
        *known_facts(recipient, ("legal_entity", "attention")),
        ("month", f"{period.month} ({period.zone})"),
        ("bounds", f"{period.start} – {period.end}"),
        ("bounds_utc", f"{period.start_utc} – {period.end_utc}"),
        ("currency", invoice.currency),
        *_note_facts(invoice, look),
        ("this_document", printing.sha256 or at_issue),
        ("previous_document", invoice.previous_sha256 or look.word("first_in_series")),
    ]
    return [(key, visible(value)) for key, value in rows]


def _note_facts(invoice: Invoice, look: Look) -> list[tuple[str, str]]:
    """Return for a note the invoice that it corrects, and the reason."""
    about = [("corrects_invoice", invoice.invoice.number)] if invoice.invoice else []
    if invoice.reason is None:
        return about
    return [*about, ("note_reason", f"{look.code(NOTE_REASONS, invoice.reason.code)} – {invoice.reason.text}")]


def _write_summary(
    sheet: Worksheet,
    invoice: Invoice,
    facts: list[tuple[str, str]],
    references: dict[str, str],
    look: Look,
) -> None:
    for index, width in enumerate((32, 24, 60)):
        sheet.set_column(index, index, width)
    sheet.set_row(0, 30)
    sheet.write_string(0, 0, look.word(TITLES[invoice.kind]), look.styles["title"])
    for row, (key, value) in enumerate(facts, start=2):
        sheet.write_string(row, 0, look.word(key), look.styles["label"])
        sheet.write_string(row, 1, value, look.styles["mark" if key == "status" else "text"])
    total_row = _write_subtotals(sheet, len(facts) + 3, invoice, references, look)
    _write_notes(sheet, total_row + 2, invoice, look)
    _set_up_print(sheet)


def _write_subtotals(sheet: Worksheet, head_row: int, invoice: Invoice, references: dict[str, str], look: Look) -> int:
    """Write subtotals, each a reference to the lines sheet, and their sum; return the row of the total."""
    sheet.write_string(head_row, 0, look.word("kind"), look.styles["head"])
    sheet.write_string(head_row, 1, look.word("amount"), look.styles["head_right"])
    for row, subtotal in enumerate(invoice.subtotals, start=head_row + 1):
        sheet.write_string(row, 0, look.code(KINDS, subtotal.kind), look.styles["text"])
        formula = references[subtotal.kind]
        sheet.write_formula(row, 1, formula, look.styles["money"], float(subtotal.amount))
    total_row = head_row + 1 + len(invoice.subtotals)
    formula = f"=SUM(B{head_row + 2}:B{total_row})" if invoice.subtotals else "=0"
    label = visible(f"{look.word('total')} {invoice.currency}")
    sheet.write_string(total_row, 0, label, look.styles["total_label"])
    sheet.write_formula(total_row, 1, formula, look.styles["total"], float(invoice.total))
    return total_row


def _write_notes(sheet: Worksheet, row: int, invoice: Invoice, look: Look) -> None:
    corrections = sum_of(line for line in invoice.lines if line.is_correction)
    figures = [("of_which_corrections", corrections or None, "money"), ("energy_kwh", invoice.energy_kwh, "energy")]
    for key, figure, style in figures:
        if figure is not None:
            sheet.write_string(row, 0, look.word(key), look.styles["label"])
            sheet.write_number(row, 1, float(figure), look.styles[style])
            if key == "energy_kwh":
                sheet.write_string(row, 2, inline(choose(SENTENCES["energy"], look.language)), look.styles["label"])
            row += 1
    for row_of_text, key in enumerate(("terms", "dispute"), start=row + 1):
        text = "\n".join(choose(SENTENCES[key], look.language))
        sheet.write_string(row_of_text, 0, look.word(key), look.styles["note_label"])
        sheet.merge_range(row_of_text, 1, row_of_text, 2, text, look.styles["note"])
        sheet.set_row(row_of_text, 62)
