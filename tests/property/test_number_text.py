"""The text of a number of a document is a function of its value: how a decimal came about leaves no trace."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.corrections.dispute_holdback import HeldPart
from billing.corrections.note_lines import (
    BilledLine,
    NoteEntry,
    allowance,
    note_draft,
    rebilled_line,
    reversal,
    withdrawal,
)
from billing.exports.journal import Chart, held_journal, journal_csv, journals_of
from billing.invoices.lines import InvoiceParties, draft_document, invoice_lines
from billing.runtime.canonical_json import canonical_json
from metering.intervals import billing_month
from pricing.money import EXACT, MoneyError
from pricing.number_text import amount_text, amounts_text, energy_text, fixed_text, plain_text, price_text, quantity_text
from pricing.rating import Charge, LineKey

KEY = LineKey(
    "nlp", False, False, "2026-10", "gpu", "hq-1", "nlp-train", "", "NVIDIA-H800", "NVIDIA-H800", "", "GPU-Hours", "v1"
)
HEADER = {
    "kind": "credit", "issuer": {"name": "AI-INFRA"}, "recipient": {"team": "nlp", "name": "NLP", "cost_center": "CC-210"},
    "currency": "CNY", "reason": {"code": "price", "text": "wrong"}, "invoice": None,
}  # fmt: skip
ZONE = "Asia/Shanghai"
PARTIES = InvoiceParties("AI-INFRA", "nlp", "NLP", "CC-210", "CNY", "2026-10", ZONE, billing_month("2026-10", ZONE))


def scaled(places: int, largest: int = 10**12) -> st.SearchStrategy[Decimal]:
    """Values of a field of so many decimals; small ones and zero often."""
    units = st.one_of(st.sampled_from([0, 0, 1, -1]), st.integers(-largest, largest))
    return units.map(lambda count: EXACT.scaleb(Decimal(count), -places))


@st.composite
def another_form(draw: st.DrawFn, value: Decimal) -> Decimal:
    """The same value with more or fewer digits behind it, and zero with either sign."""
    kind = draw(st.sampled_from(["as it is", "padded", "shortest", "to the column"]))
    found = {
        "as it is": value,
        "padded": EXACT.quantize(value, Decimal(1).scaleb(-draw(st.integers(12, 20)))),
        "shortest": EXACT.normalize(value),
        "to the column": EXACT.quantize(value, Decimal(1).scaleb(-12)),
    }[kind]
    return found.copy_negate() if not found and draw(st.booleans()) else found


TEXTS = {amount_text: 2, quantity_text: 6, energy_text: 3, price_text: 8, plain_text: 8}


@given(st.data())
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.__name__)
def test_a_value_has_one_text_that_says_it(text: Callable[[Decimal], str], data: st.DataObject) -> None:
    value = data.draw(scaled(TEXTS[text]))
    said = text(value)
    assert text(data.draw(another_form(value))) == said
    assert Decimal(said) == value
    assert "E" not in said
    assert said.startswith("-") == (value < 0)
    if text not in (price_text, plain_text):
        assert len(said.partition(".")[2]) == TEXTS[text]


def test_zero_has_one_form_per_field_and_the_sum_of_nothing_is_zero() -> None:
    zeros = [Decimal(text) for text in ("0", "-0", "0.00", "-0.000000", "0E-12", "0E+5")]
    assert {amount_text(zero) for zero in zeros} == {"0.00"}
    assert {quantity_text(zero) for zero in zeros} == {"0.000000"}
    assert {energy_text(zero) for zero in zeros} == {"0.000"}
    assert {price_text(zero) for zero in zeros} == {"0.0000"}
    assert {plain_text(zero) for zero in zeros} == {"0"}
    assert amounts_text([]) == "0.00"


def test_a_number_with_more_decimals_than_its_field_is_refused_not_rounded() -> None:
    assert fixed_text(Decimal("1.230"), 2) == "1.23"
    with pytest.raises(MoneyError, match=r"0\.005 has more than 2 decimals"):
        amount_text(Decimal("0.005"))


FIGURES = {"quantity": 6, "unit_price": 8, "amount": 2, "usage_quantity": 12, "energy_kwh": 3}


@st.composite
def billed(draw: st.DrawFn, position: int) -> BilledLine:
    figures = {name: draw(scaled(places, 10**9)) for name, places in FIGURES.items()}
    return BilledLine("N-1", position, 1, KEY, **figures)


def entries_of(lines: list[BilledLine]) -> list[NoteEntry]:
    """Every style of entry of each line."""
    found = []
    for line in lines:
        found += [
            reversal(line), withdrawal(line, line.amount), allowance(line, line.amount, quantity=line.quantity),
            rebilled_line(line, unit_price=abs(line.unit_price), usage_quantity=None),
        ]  # fmt: skip
    return found


@given(st.data())
def test_a_note_has_the_same_text_whichever_way_its_figures_were_stored(data: st.DataObject) -> None:
    lines = [data.draw(billed(position)) for position in range(1, data.draw(st.integers(1, 4)) + 1)]
    again = [
        replace(line, **{name: data.draw(another_form(getattr(line, name))) for name in FIGURES}) for line in lines
    ]
    first, second = (note_draft(HEADER, entries_of(found)) for found in (lines, again))
    assert canonical_json(first) == canonical_json(second)


@given(st.data())
def test_an_invoice_has_the_same_text_whichever_way_its_usage_and_prices_were_stored(data: st.DataObject) -> None:
    priced = data.draw(st.lists(st.tuples(scaled(12), scaled(8), scaled(6)), min_size=1, max_size=4))
    rows = [tuple(abs(figure) for figure in row) for row in priced]
    forms = [tuple(data.draw(another_form(figure)) for figure in row) for row in rows]
    texts = []
    for found in (rows, forms):
        charges = [Charge(KEY.changed(namespace=f"n{place}"), *row) for place, row in enumerate(found)]
        texts.append(canonical_json(draft_document(PARTIES, invoice_lines(charges))))
    assert texts[0] == texts[1]


@given(st.data())
def test_a_journal_has_the_same_bytes_whichever_way_its_held_parts_were_stored(data: st.DataObject) -> None:
    amount, held = data.draw(scaled(2, 10**9)), data.draw(scaled(2, 10**9))
    document = {
        "number": "N-1", "recipient": {"team": "nlp", "cost_center": "CC-210"}, "issuer": {"name": "AI-INFRA"},
        "period": {"month": "2026-10", "zone": "Asia/Shanghai", "end": "2026-11-01T00:00:00+08:00"}, "currency": "CNY",
        "subtotals": [{"kind": "gpu", "amount": amount_text(amount)}], "total": amount_text(amount),
    }  # fmt: skip
    files = [
        journal_csv([*journals_of(document, Chart(), [part]), held_journal(document, Chart(), part)])
        for part in (HeldPart(1, 7, {"gpu": form}) for form in (held, data.draw(another_form(held))))
    ]
    assert files[0] == files[1]
