"""Every number of a document has one text, whichever way the value was stored in between."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from billing.corrections.services.retroactive import (
    retroactive_acknowledge,
    retroactive_approve,
    retroactive_propose,
)
from billing.invoices.models import Note
from billing.invoices.selectors import document_of
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, bill, credit, part, people, proofs_hold, shown

pytestmark = pytest.mark.django_db
OCTOBER = datetime(2026, 9, 30, 16, tzinfo=UTC)
FOR_NOTHING = {"gpu": [{"accelerator": "NVIDIA-H800", "price": "0"}]}


def price_at_nothing(name: str, microseconds: int) -> None:
    """The first microseconds of October at a price of zero, from now on."""
    change = retroactive_propose(
        kind="price", name=name, fact=FOR_NOTHING, valid_from=OCTOBER,
        valid_until=OCTOBER + timedelta(microseconds=microseconds), reason="a trial", evidence="", actor="sam",
        now=OCTOBER_OVER,
    )  # fmt: skip
    retroactive_acknowledge(change_id=change.pk, team="nlp", actor="lea", now=OCTOBER_OVER)
    retroactive_approve(change_id=change.pk, actor="fin", now=OCTOBER_OVER)


def test_a_reversed_line_whose_quantity_rounds_to_zero_has_the_text_of_any_quantity(tmp_path: Path) -> None:
    """280 microseconds of one GPU are 0.00000008 hours: 0.000000 on the rebill, and on the note that reverses it."""
    people()
    apply(tmp_path, price_versions=[{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}])
    ingest_allocations(
        allocation_record(
            quantity=1, started_at="2026-09-30T16:00:00Z", ended_at="2026-09-30T18:00:00Z", observed_until=None
        )
    )
    bill()
    for name, microseconds in (("first", 17_069), ("second", 280), ("third", 15_272)):
        price_at_nothing(name, microseconds)
    last = Note.objects.filter(kind=Note.Kind.CREDIT).latest("id")
    reversed_lines = [line for line in shown(last) if line[0] == "reversal"]
    assert ("reversal", "gpu", "0.000000", "0.0000", "0.00") in reversed_lines
    assert {line[2] for line in reversed_lines} == {"0.000000", "-0.000005"}
    assert {line["energy_kwh"] for line in document_of(last)["lines"]} == {None}
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_an_allowance_explained_by_a_quantity_of_few_digits_is_proven_like_any_other(tmp_path: Path) -> None:
    """12 hours at 10 off the 20 of the line: written -12.000000 at 10.0000 on issue, and again from the stored row."""
    people()
    apply(tmp_path)
    ingest_allocations(
        allocation_record(quantity=10, started_at="2026-10-10T00:00:00Z", ended_at="2026-10-10T02:00:00Z",
                          observed_until=None)
    )  # fmt: skip
    bill()
    (note,) = credit(part("120.00", quantity=Decimal("12"), unit_price=Decimal("1E+1")))
    assert shown(note) == [("allowance", "credit", "-12.000000", "10.0000", "-120.00")]
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-11")
