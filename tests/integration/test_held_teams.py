"""One team whose facts are broken is held; the others are billed, approved and issued, and closing again finishes it."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from billing.invoicing.models import BillingPeriod, HeldTeam, Invoice
from billing.invoicing.report import build_report
from billing.invoicing.services import invoices_issue, period_close, period_verify
from billing.invoicing.services.closing import TeamsHeldError
from billing.rating.models import Charge
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
LATER = datetime(2026, 11, 2, 0, 5, tzinfo=UTC)
DEAR = {"accelerator": "NVIDIA-DEAR", "price_per_gpu_hour": "1000000.0000"}


@pytest.fixture
def broken(tmp_path: Path) -> None:
    """nlp: 8 devices for 9,433 s at 10.00 (209.62) and its tokens. cv: 3 devices as long (78.61), and one device for
    720 h at 1,000,000.00, of which a fault in the ledger made two thousand million: 1.44 x 10^18, more than an amount
    can hold."""
    version = SET_UP["price_versions"][0]
    apply(tmp_path, price_versions=[{**version, "gpu": [*version["gpu"], DEAR]}])
    ingest_allocations(
        allocation_record(1),
        allocation_record(2, namespace="cv", quantity=3),
        allocation_record(
            3, namespace="cv", quantity=1, accelerator="NVIDIA-DEAR", started_at="2026-10-01T00:00:00Z",
            ended_at="2026-10-31T00:00:00Z", observed_until="2026-10-31T00:00:00Z",
        ),
    )
    ingest_tokens(token_record(1))
    _devices_are(2_000_000_000)


def repair() -> None:
    _devices_are(1)


def _devices_are(quantity: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE usage_gpuallocation SET quantity = %s WHERE accelerator = 'NVIDIA-DEAR'", [quantity])


def close(now: datetime = OVER) -> None:
    period_close(month=MONTH, actor="ops", now=now)


def period() -> BillingPeriod:
    return BillingPeriod.objects.get(month=MONTH)


def test_a_team_that_cannot_be_billed_is_held_and_the_others_are_drafted(broken: None) -> None:
    with pytest.raises(TeamsHeldError, match="1 of its teams cannot be billed, 1 invoices of others are drafted"):
        close()
    assert period().status == "closing"
    nlp = Invoice.objects.get()
    assert (nlp.team.code, nlp.status) == ("nlp", "approved")
    assert next((line["kind"], line["amount"]) for line in nlp.draft["lines"]) == ("gpu", "209.62")
    assert set(Charge.objects.values_list("team", flat=True)) == {"nlp"}
    (held,) = HeldTeam.objects.all()
    assert (held.team, "numeric field overflow" in held.problem) == ("cv", True)
    assert held.amount == Decimal("1440000000000000078.61")


def test_the_report_says_who_is_held_why_and_what_to_do(broken: None) -> None:
    with pytest.raises(TeamsHeldError):
        close()
    report = build_report(period(), now=LATER)
    (item,) = report.blocking
    assert (item.kind, item.subject, item.facts.owner.value) == ("team_held", "cv", "admin")
    assert item.facts.link(MONTH) == "/close/?month=2026-10"
    assert not report.closable
    assert all(check.ok for check in report.checks)
    client = Client()
    client.force_login(factories.person("fin", "finance"))
    page = client.get(f"/close/?month={MONTH}").content.decode()
    assert "Team that cannot be billed" in page
    assert "numeric field overflow" in page


def test_closing_again_without_repair_changes_nothing(broken: None) -> None:
    for now in (OVER, LATER):
        with pytest.raises(TeamsHeldError):
            close(now)
    assert Invoice.objects.count() == 1
    assert Charge.objects.filter(team="cv").count() == 0
    assert HeldTeam.objects.count() == 1


def test_once_repaired_closing_again_bills_the_team_and_closes_the_month(broken: None) -> None:
    with pytest.raises(TeamsHeldError):
        close()
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 1  # the others do not wait
    before = Invoice.objects.get(team__code="nlp").sha256
    repair()
    close(LATER)
    assert (period().status, HeldTeam.objects.count()) == ("closed", 0)
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 1
    cv = Invoice.objects.get(team__code="cv")
    assert cv.total == Decimal("720000078.61")  # 720 h at 1,000,000.00, and 78.61
    numbers = list(Invoice.objects.order_by("sequence").values_list("number", "sequence", "previous_sha256"))
    assert numbers == [("AI-INFRA-2026-000001", 1, ""), ("AI-INFRA-2026-000002", 2, before)]
    assert all(proof.holds for proof in period_verify(month=MONTH))
    report = build_report(period(), now=LATER)
    assert report.closable
    assert all(check.ok for check in report.checks)


def test_the_command_tells_who_is_held_and_exits_with_3(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("period_close", MONTH, "--json", "--by", "ops")
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == 3
    assert told["status"] == "closing"
    assert [item["subject"] for item in told["exceptions"] if item["blocks"]] == ["cv"]
    assert "cv: numeric field overflow" in told["message"]
