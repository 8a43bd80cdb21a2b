"""What a close keeps for pages of a whole installation: sums of invoices (an upgrade makes them too), the time of its
pools."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from billing.invoices.line_rollups import invoiced_rollups, invoiced_total
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, InvoiceSums
from billing.rating.models import PoolTime
from billing.rating.selectors import pool_times
from billing.tenancy.models import Team
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import bill

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
DEARER = {
    **SET_UP["price_versions"][0], "name": "2026-10b", "valid_from": "2026-10-15T00:00:00+08:00",
    "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.0000"}],
}  # fmt: skip
DEVICES = ["nlp", "gpu", False, "hq-1", "nlp-train", "", "NVIDIA-H800", "NVIDIA-H800", "", "GPU-Hours"]
OUTPUT = ["nlp", "tokens", False, "", "", "nlp-key-1", "", "llama-3-8b", "output", "1M Tokens"]


def held(number: int, day: str, **changed: Any) -> dict[str, Any]:
    """Ten cards for ten hours."""
    start, end = f"2026-10-{day}T00:00:00Z", f"2026-10-{day}T10:00:00Z"
    return allocation_record(number, quantity=10, started_at=start, ended_at=end, observed_until=end, **changed)


@pytest.fixture
def october(tmp_path: Path) -> BillingPeriod:
    """nlp owes 1,000.00 and, after a price change, 1,200.00 for the same cards, and 8.00 for tokens; cv owes 100.00."""
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], DEARER])
    ingest_allocations(held(1, "10"), held(2, "20"), held(3, "10", namespace="cv", device_fraction="0.1"))
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill()
    return BillingPeriod.objects.get(month="2026-10")


def facts(row: InvoiceSums) -> list[Any]:
    return [row.gpu, row.tokens, row.other, json.loads(row.facets)]


def test_lines_that_differ_in_their_price_alone_are_one_sum(october: BillingPeriod) -> None:
    assert InvoiceLine.objects.filter(invoice__team__code="nlp").count() == 3
    found = facts(InvoiceSums.objects.get(invoice__team__code="nlp"))
    assert found == [
        Decimal("2200.00"), Decimal("8.00"), Decimal("0.00"),
        [[*DEVICES, "200.000000", "2200.00"], [*OUTPUT, "1.000000", "8.00"]],
    ]  # fmt: skip
    charged, shadow = invoiced_rollups(october, Team.objects.all())
    assert [(item.team, item.quantity, item.amount) for item in charged] == [
        ("cv", Decimal("10.000000"), Decimal("100.00")), ("nlp", Decimal("200.000000"), Decimal("2200.00")),
        ("nlp", Decimal("1.000000"), Decimal("8.00")),
    ]  # fmt: skip
    assert shadow == []
    assert invoiced_total(october, Team.objects.all(), shadow=False) == Decimal("2308.00")
    assert invoiced_total(october, Team.objects.filter(code="cv"), shadow=False) == Decimal("100.00")


def test_sums_of_an_issued_invoice_are_refused_every_change(october: BillingPeriod) -> None:
    row = InvoiceSums.objects.get(invoice__team__code="nlp")
    twice = InvoiceSums(invoice=Invoice.objects.get(team__code="nlp"), gpu=0, tokens=0, other=0, facets="[]")
    for change in (
        lambda: InvoiceSums.objects.filter(pk=row.pk).update(gpu=1),
        lambda: InvoiceSums.objects.filter(pk=row.pk).delete(),
        lambda: twice.save(force_insert=True),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()
    assert facts(InvoiceSums.objects.get(pk=row.pk)) == facts(row)


def test_a_close_keeps_what_became_of_the_time_of_its_pools(october: BillingPeriod) -> None:
    """Ten cards twice for ten hours and a tenth of ten: 210 hours, all charged."""
    times = pool_times(october.close_seq or 0)
    found = {pool: (row.charged, row.platform, row.unowned, row.unpriced) for pool, row in times.items()}
    assert found == {("hq-1", "NVIDIA-H800"): (Decimal(210 * 3_600_000_000), 0, 0, 0)}
    with pytest.raises(DatabaseError), transaction.atomic():
        PoolTime.objects.update(charged=0)
