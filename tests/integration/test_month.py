"""A month from usage to issued invoices, with every number computed by hand."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def test_a_month_is_billed_to_the_cent(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    ingest_tokens(
        token_record(1, input_tokens=1_434_567, cache_read_input_tokens=200_000, output_tokens=345_678),
        token_record(2, input_tokens=0, cache_read_input_tokens=0, output_tokens=0, reasoning_output_tokens=0),
    )

    assert period_close(month="2026-10", actor="closer", now=AFTER).invoices == 1
    assert invoices_issue(month="2026-10", actor="closer", now=AFTER) == 1

    invoice = Invoice.objects.get()
    lines = {(line.kind, line.token_class): line for line in invoice.lines.all()}
    assert lines["gpu", ""].quantity == Decimal("20.962222")
    assert lines["gpu", ""].amount == Decimal("209.62")  # 8 x 9433 s x 10 / 3600 = 209.6222...
    assert lines["tokens", "input"].amount == Decimal("2.47")  # 1.234567 x 2
    assert lines["tokens", "cache_read"].amount == Decimal("0.04")
    assert lines["tokens", "output"].amount == Decimal("2.77")  # 0.345678 x 8 = 2.765424
    assert len(lines) == 4
    assert invoice.total == Decimal("214.90")
    assert invoice.number == "AI-INFRA-2026-000001"
    assert json.loads(invoice.document)["recipient"] == {"team": "nlp", "name": "NLP Research", "cost_center": "CC-210"}
    assert [proof.holds for proof in period_verify(month="2026-10")] == [True]
