"""F08 against the real database: usage of a closed February that is reported in March is billed in March at February's
price."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.closing.services.closing import period_close
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import document_of
from billing.invoices.services.invoices import invoices_issue
from tests.factories import allocation_record, apply, ingest_allocations
from tests.golden.registry import VECTORS

pytestmark = pytest.mark.django_db
FACTS = VECTORS["F08"]["inputs"]
PRICES = {"2026-02": "10.0000", "2026-03": "11.0000"}
MARCH_OVER = datetime(2026, 4, 1, 0, 5, tzinfo=UTC)


def noon(day: str) -> datetime:
    return datetime.fromisoformat(f"{day}T12:00:00+00:00")


def billed(month: str, now: datetime) -> None:
    period_close(month=month, actor="ops", now=now)
    invoices_issue(month=month, actor="ops", now=now)


def test_f08_late_usage_is_billed_in_the_open_period_at_the_price_of_its_own_time(tmp_path: Path) -> None:
    ownership = [{"cluster": "hq-1", "namespace": "*", "team": "nlp", "valid_from": "2026-01-01"}]
    versions = [
        {
            "name": month, "valid_from": f"{month}-01T00:00:00+08:00",
            "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": price}],
        }
        for month, price in PRICES.items()
    ]  # fmt: skip
    apply(tmp_path, ownership=ownership, price_versions=versions)
    billed(FACTS["charge_period"], noon(FACTS["february_closed"]))
    assert not Invoice.objects.exists()

    late = allocation_record(
        quantity=4, started_at="2026-02-10T00:00:00Z", ended_at="2026-02-10T03:00:00Z", observed_until=None
    )
    ingest_allocations(late, now=noon(FACTS["ingested"]))
    billed("2026-03", MARCH_OVER)

    invoice = Invoice.objects.get()
    (line,) = document_of(invoice)["lines"]
    assert line["quantity"] == f"{FACTS['gpu_hours']}.000000"
    answers = {
        "amount": line["amount"], "billing_period": invoice.period.month, "charge_class": line["charge_class"],
        "price_used": line["unit_price"].removesuffix(".0000"),
    }  # fmt: skip
    assert answers == VECTORS["F08"]["expected"]
    assert line["price_version"] == "2026-02"
    assert BillingPeriod.objects.get(month="2026-02").closed_at == noon(FACTS["february_closed"])
