"""Invoice documents: what is printed is the document, the whole document, and the same bytes every time."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import openpyxl
import pypdf
import pytest

from billing.invoices.documents import (
    DocumentError,
    PdfRenderer,
    UnbalancedDocumentError,
    render_csv,
    render_xlsx,
)
from billing.invoices.documents.content import read_document
from billing.invoices.documents.layout import abacus_digits
from tests.invoice_documents import ISSUED, ORDINARY, PREVIOUS, SHA256, gpu, invoice, reward, tokens

REPOSITORY = Path(__file__).resolve().parents[2]
DRAFT = {"sha256": None, "issued_at": None, "status": "draft"}


@pytest.fixture(scope="module")
def renderer():
    return PdfRenderer()


def text_of(pdf: bytes) -> str:
    return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages)


def unbroken(text: str) -> str:
    return re.sub(r"\s+", "", text)


# ---- PDF -----------------------------------------------------------------------------------------------------------


def test_equal_documents_give_equal_bytes_whatever_was_rendered_before(renderer):
    alone = PdfRenderer().render(ORDINARY, **ISSUED)
    renderer.render(invoice(gpu("5.00")), **ISSUED)
    assert renderer.render(ORDINARY, **ISSUED) == alone


def test_the_date_of_the_file_is_the_moment_of_issue(renderer):
    metadata = pypdf.PdfReader(io.BytesIO(renderer.render(ORDINARY, **ISSUED))).metadata
    assert metadata.creation_date == ISSUED["issued_at"]
    assert metadata.title == "账单 Invoice AI-INFRA-2026-000001"


def test_it_is_pdf_a_2b_with_every_font_embedded(renderer):
    reader = pypdf.PdfReader(io.BytesIO(renderer.render(ORDINARY, **ISSUED)))
    metadata = reader.trailer["/Root"]["/Metadata"].get_object().get_data().decode()
    assert "<pdfaid:part>2</pdfaid:part>" in metadata
    assert "<pdfaid:conformance>B</pdfaid:conformance>" in metadata
    fonts = [font.get_object() for page in reader.pages for font in page["/Resources"]["/Font"].values()]
    assert any("NotoSansCJK" in font["/BaseFont"] for font in fonts)
    for font in fonts:
        descriptor = font["/DescendantFonts"][0]["/FontDescriptor"]
        assert {"/FontFile2", "/FontFile3"} & set(descriptor), font["/BaseFont"]


def test_everything_a_finance_director_looks_for_is_printed(renderer):
    text = text_of(renderer.render(ORDINARY, **ISSUED))
    for expected in (
        "账单 Invoice", "AI-INFRA-2026-000001", "NLP Research", "CC-210", "AI-INFRA", "2026-11-03",
        "2026-10 (Asia/Shanghai)", "2026-10-01 00:00 – 2026-11-01 00:00", "2026-09-30 16:00 – 2026-10-31 16:00",
        "hq-1 / nlp-train", "NVIDIA-H800", "20.962222", "10.0000", "209.62", "GPU-Hours",
        "llama-3-8b", "缓存读取 Cache read", "nlp-key-1", "1.234567", "2.47",
        "奖励 Reward", "bands-v1", "作业 Jobs 3", "−20.96", "小计 Subtotal", "合计 Total", "191.13",
        "31.2 kWh", "仅供参考，不计费", "内部结算 Internal transfer", "如有异议", SHA256, PREVIOUS, "Page 1 / 1",
    ):  # fmt: skip
        assert unbroken(expected) in unbroken(text), expected


def test_the_last_day_to_dispute_is_printed_where_it_is_known(renderer):
    """The window ends at midnight of Shanghai after the 17th."""
    due = datetime(2026, 11, 17, 16, tzinfo=UTC)
    assert "异议截止Disputeuntil2026-11-17" in unbroken(text_of(renderer.render(ORDINARY, **ISSUED, due=due)))
    assert "异议截止" not in text_of(renderer.render(ORDINARY, **ISSUED))
    summary = openpyxl.load_workbook(io.BytesIO(render_xlsx(ORDINARY, **ISSUED, due=due))).worksheets[0]
    facts = {row[0].value: row[1].value for row in summary.iter_rows(max_col=2)}
    assert facts["异议截止 Dispute until"] == "2026-11-17"


@pytest.mark.parametrize(
    ("language", "present", "absent"), [("zh", "成本中心", "Cost centre"), ("en", "Cost centre", "成本中心")]
)
def test_one_language_alone(renderer, language, present, absent):
    text = text_of(renderer.render(ORDINARY, **ISSUED, language=language))
    assert present in text
    assert absent not in text


def test_a_draft_needs_neither_number_nor_hash_and_says_what_it_is(renderer):
    text = text_of(renderer.render({**ORDINARY, "number": None}, **DRAFT))
    assert unbroken(text).count("草稿DRAFT") == 4, "across the page, under the title, in a note, in the foot"
    assert "尚未开具" in text
    assert "DRAFT" not in text_of(renderer.render(ORDINARY, **ISSUED))


@pytest.mark.parametrize("missing", ["sha256", "issued_at"])
def test_an_issued_document_without_its_facts_is_not_printed(renderer, missing):
    with pytest.raises(DocumentError, match="AI-INFRA-2026-000001"):
        renderer.render(ORDINARY, **{**ISSUED, missing: None})


def test_an_unknown_status_is_not_printed_as_if_issued(renderer):
    with pytest.raises(ValueError, match="'cancelled'"):
        renderer.render(ORDINARY, **ISSUED, status="cancelled")


def test_the_file_of_an_issued_document_does_not_change_with_a_dispute(renderer):
    issued = renderer.render(ORDINARY, **ISSUED)
    assert renderer.render(ORDINARY, **ISSUED, status="disputed") == issued


def test_typst_source_in_names_stays_text(renderer):
    attacks = (
        '#panic("x")',
        "$x^2$ *b* _e_",
        "`raw` <l> @ref",
        '"]) #read("/etc/passwd")',
        "\\u{41} // c",
        "'); [x]{y}",
    )
    lines = [gpu("1.00", namespace=attack, sku=attack) for attack in attacks]
    recipient = {"team": attacks[0], "name": attacks[3], "cost_center": attacks[1]}
    text = unbroken(text_of(renderer.render(invoice(*lines, recipient=recipient), **ISSUED)))
    for attack in attacks:
        assert text.count(unbroken(attack)) >= 2, attack


def test_invisible_and_undisplayable_characters_are_spelled_out(renderer):
    line = gpu("1.00", namespace="a\u202eb\u200bc\x07d 😀", sku="żółć Ωμέγα 昇腾")
    text = unbroken(text_of(renderer.render(invoice(line), **ISSUED)))
    assert "a[U+202E]b[U+200B]c[U+0007]d[U+1F600]" in text
    assert "żółćΩμέγα昇腾" in text


def test_a_name_of_200_characters_wraps_inside_its_column(renderer):
    text = text_of(renderer.render(invoice(gpu("1.00", namespace="n" * 200, sku="模" * 200)), **ISSUED))
    pieces = re.findall(r"n{3,}|模+", text)
    assert sum(map(len, pieces)) == 400
    assert max(map(len, pieces)) <= 20


def test_the_columns_of_a_row_begin_on_one_line_however_long_a_name_is(renderer):
    """The SKU takes one line, the namespace several: place, quantity, price and amount stand at the height of the SKU."""
    pdf = renderer.render(invoice(gpu("1.00", namespace="n" * 90, sku="H800-X", price_version="v-7")), **ISSUED)
    heights: dict[str, float] = {}

    def note(text: str, page: list[float], line: list[float], *_: object) -> None:
        for word in ("H800-X", "hq-", "20.962222", "10.0000", "v-7"):
            if word in text:
                heights.setdefault(word, round(page[3] * line[5] + page[5], 1))

    pypdf.PdfReader(io.BytesIO(pdf)).pages[0].extract_text(visitor_text=note)
    assert len(heights) == 5
    assert len(set(heights.values())) == 1


def test_letters_that_the_main_font_lacks_are_set_in_the_serif_that_has_them(renderer):
    def serif(name: str) -> bool:
        reader = pypdf.PdfReader(io.BytesIO(renderer.render(invoice(gpu(namespace=name)), **ISSUED)))
        return any(
            "Libertinus" in str(font["/BaseFont"].get_object())
            for page in reader.pages
            for font in (item.get_object() for item in page["/Resources"]["/Font"].values())
        )

    assert (serif("Łódź"), serif("Zürich")) == (True, False)


def test_500_lines_run_over_pages_under_repeated_headers(renderer):
    lines = [gpu("1.00", namespace=f"team-{number:03d}") for number in range(500)]
    reader = pypdf.PdfReader(io.BytesIO(renderer.render(invoice(*lines), **ISSUED)))
    pages = [page.extract_text() for page in reader.pages]
    assert 10 <= len(pages) <= 14
    assert all("单价" in page for page in pages[:-1])
    assert f"Page {len(pages)} / {len(pages)}" in pages[-1]
    assert re.findall(r"team-\d{3}", "".join(pages)) == [f"team-{number:03d}" for number in range(500)]


def test_late_usage_stands_apart_inside_its_kind_and_counts_into_its_subtotal(renderer):
    late = gpu("-76.65", charge_class="Correction", charge_period="2026-08", quantity="-18.250000")
    text = unbroken(text_of(renderer.render(invoice(late, gpu("100.00")), **ISSUED)))
    for expected in (
        "以前账期更正",
        "更正账期Corrects2026-08",
        "其中更正Ofwhichcorrections−76.65",
        "小计Subtotal23.35",
    ):
        assert expected in text
    assert text.index("100.00") < text.index("以前账期更正")


def test_an_invoice_without_lines_is_an_invoice(renderer):
    text = text_of(renderer.render(invoice(previous_sha256=None, energy_kwh=None), **ISSUED))
    assert "本期无费用" in text
    assert "本系列首张单据" in text
    assert "kWh" not in text


def test_the_abacus_at_the_head_shows_the_total():
    assert abacus_digits(read_document(ORDINARY)) == [0, 0, 0, 0, 1, 9, 1, 1, 3]


def test_a_document_that_does_not_add_up_is_refused(renderer):
    for render in (renderer.render, render_csv, render_xlsx):
        with pytest.raises(UnbalancedDocumentError, match=r"191\.13"):
            render({**ORDINARY, "total": "191.14"}, **ISSUED)


@pytest.mark.parametrize("change", [{"schema": "suanpan/invoice/2"}, {"currency": None}, {"total": "NaN"}])
def test_a_document_of_another_shape_is_refused(renderer, change):
    with pytest.raises(DocumentError, match="AI-INFRA-2026-000001"):
        renderer.render({**ORDINARY, **change}, **ISSUED)


# ---- CSV -----------------------------------------------------------------------------------------------------------


def rows_of(document: dict[str, object], **facts: object) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(document, **facts).decode("utf-8-sig"), newline="")))


def test_csv_opens_as_utf8_in_excel_and_holds_one_row_a_line():
    document = invoice(gpu(namespace="自然语言"), tokens(), reward())
    assert render_csv(document, **ISSUED).startswith(b"\xef\xbb\xbfinvoice_number,")
    rows = rows_of(document, **ISSUED)
    assert [row["amount"] for row in rows] == ["209.62", "2.47", "-20.96"]
    assert rows[0]["namespace"] == "自然语言"
    assert rows[2]["unit_price"] == "-1.0000"
    assert {row["document_sha256"] for row in rows} == {SHA256}
    assert sum(Decimal(row["amount"]) for row in rows) == Decimal("191.13")


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "－1"])
def test_csv_text_never_becomes_a_formula(start):
    recipient = {"team": start, "name": start, "cost_center": start}
    (row,) = rows_of(invoice(gpu(namespace=start, cluster=start, sku=start), recipient=recipient), **ISSUED)
    for column in ("team", "recipient", "cost_center", "namespace", "cluster", "sku"):
        assert row[column] == f"'{start}"


def test_csv_keeps_names_of_digits_that_a_spreadsheet_would_change():
    names = ["1234567890123456", "12e45", "3.5E7", "007", "123456789012345", "210", "0", "a7"]
    rows = rows_of(invoice(*(gpu(namespace=name) for name in names)), **ISSUED)
    assert [row["namespace"] for row in rows] == [
        "'1234567890123456", "'12e45", "'3.5E7", "007", "123456789012345", "210", "0", "a7",
    ]  # fmt: skip


# ---- XLSX ----------------------------------------------------------------------------------------------------------


def sheets_of(document: dict[str, object], *, values: bool, **facts: object):
    return openpyxl.load_workbook(io.BytesIO(render_xlsx(document, **facts)), data_only=values).worksheets


def test_xlsx_sums_are_formulas_that_carry_their_value():
    document = invoice(gpu("100.00"), gpu("109.62"), tokens(), reward())
    summary, lines = sheets_of(document, values=False, **ISSUED)
    _, stored = sheets_of(document, values=True, **ISSUED)
    formulas = {cell.row: cell.value for cell in lines["K"] if str(cell.value).startswith("=")}
    assert list(formulas.values()) == ["=SUM(K2:K3)", "=SUM(K6:K6)", "=SUM(K9:K9)", "=SUM(K4,K7,K10)"]
    assert [stored.cell(row, 11).value for row in formulas] == [209.62, 2.47, -20.96, 191.13]
    assert [cell.value for cell in summary["B"] if str(cell.value).startswith("=")] == [
        "='明细 Lines'!K4", "='明细 Lines'!K7", "='明细 Lines'!K10", "=SUM(B17:B19)",
    ]  # fmt: skip


def test_xlsx_is_formatted_under_a_frozen_header():
    _, lines = sheets_of(ORDINARY, values=False, **ISSUED)
    assert lines.freeze_panes == "C2"
    assert lines["H1"].value == "数量\nQuantity"
    assert lines["H2"].number_format == "#,##0.000000"
    assert lines["K2"].number_format.startswith("#,##0.00")


def test_xlsx_names_are_text():
    name = '=HYPERLINK("http://x","y")'
    _, lines = sheets_of(invoice(gpu(namespace=name, cluster="http://x")), values=False, **ISSUED)
    assert lines["D2"].value == name
    assert lines["D2"].data_type == "s"
    assert lines["C2"].hyperlink is None


def test_xlsx_bytes_are_equal_for_equal_documents_and_a_draft_is_marked():
    assert render_xlsx(ORDINARY, **ISSUED) == render_xlsx(ORDINARY, **ISSUED)
    summary, _ = sheets_of({**ORDINARY, "number": None}, values=False, **DRAFT)
    assert summary["B3"].value == "草稿 DRAFT"
