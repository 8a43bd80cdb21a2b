"""A billed October, and disputes about its lines."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from billing.corrections.models import Dispute
from billing.corrections.services.disputes import Claim, dispute_open
from billing.invoices.models import Invoice
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.corrections import bill, people

FRIDAY = datetime(2026, 11, 6, 9, tzinfo=UTC)
"""Issued on Sunday 1 November 00:05 UTC (local morning): the window ends with Friday the 13th."""


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> str:
    """Once for the tests of a module that follow the first which asks for it.

    nlp owes 1000.00 of GPU hours (line 1) and 8.00 of tokens (line 2); tom leads it."""
    people()
    apply(for_all_tests)
    person("tom", "lead", team="nlp")
    person("kim", "lead", team="cv")
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=10, ended_at=end, observed_until=end))
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill()
    return str(Invoice.objects.get().number)


def opened(number: str, positions: tuple[int, ...] = (1,), amount: str | None = "100.00", actor: str = "tom",
           now: datetime = FRIDAY, code: str = "sla") -> Dispute:  # fmt: skip
    claim = Claim(number, positions, code, "node lost at noon", "INC-9", None if amount is None else Decimal(amount))
    return dispute_open(claim=claim, actor=actor, now=now)
