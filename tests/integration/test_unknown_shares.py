"""Usage whose share of a device nobody knows: kept beside the ledger, in no charge, blocking the close until it is known."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.exceptions import ReportedException
from billing.closing.report import Report, build_report
from billing.closing.services.closing import period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.tenancy.models import ApiToken, AuditEntry
from billing.usage.models import GpuAllocation, QuarantinedRecord, ShareDeclaration, UnknownShare
from billing.usage.services import DeclarationError, share_declare
from tests.factories import allocation_record, apply, ingest_allocations, person
from tests.factories.api import gateway
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db

NOVEMBER = datetime(2026, 11, 3, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 3, tzinfo=UTC)
WHY = "16384 MiB of a Ascend910B3: the node does not say how much one has"


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def unknown(number: int = 1, **changed: Any) -> dict[str, Any]:
    """Two units for an hour on 10 October, of which nobody knows what they are of a device."""
    end = "2026-10-10T01:00:00Z"
    given = {"quantity": 2, "device_fraction": None, "share_unknown": WHY, "ended_at": end, "observed_until": end}
    return allocation_record(number, **{**given, **changed})


def report_of(month: str = "2026-10", now: datetime = NOVEMBER) -> Report:
    return build_report(period_open(month=month), now=now)


def found(month: str = "2026-10", now: datetime = NOVEMBER) -> list[ReportedException]:
    return [item for item in report_of(month, now).exceptions if item.kind in ("unknown_share", "unknown_resource")]


def declare(fraction: str | None, **more: Any) -> int:
    given = {"cluster": "hq-1", "resource": "nvidia.com/gpu", "actor": "ops", "reason": "asked the vendor", "now": NOVEMBER}
    return share_declare(**{**given, **more}, device_fraction=None if fraction is None else Decimal(fraction))


def test_a_share_that_nobody_knows_is_in_no_sum_and_blocks_the_close_with_its_quantity() -> None:
    """2 units x 3,600 s; as two whole devices they would cost 2 x 10.00."""
    assert ingest_allocations(unknown()).accepted == 1
    assert GpuAllocation.objects.count() == 0
    report = report_of()
    [item] = [item for item in report.exceptions if item.kind == "unknown_share"]
    assert (item.subject, item.quantity, item.unit, item.blocks, item.amount) == (
        "hq-1/nlp-train/nvidia.com/gpu on NVIDIA-H800", Decimal(7200), "unit_seconds", True, Decimal("20.00"),
    )  # fmt: skip
    assert item.action == f"{WHY}: declare it with `manage.py gpu_share`, or waive it"
    assert (report.closable, report.gpu_seconds["charged"], report.gpu_seconds["unpriced"]) == (False, 0, 0)


def test_an_accelerator_without_a_price_puts_an_unknown_amount_at_risk() -> None:
    ingest_allocations(unknown(accelerator="Ascend910B3"))
    assert [item.amount for item in found()] == [None]


def test_reports_of_one_allocation_are_one_and_the_furthest_counts() -> None:
    open_one = unknown(ended_at=None, observed_until="2026-10-10T00:20:00Z")
    assert ingest_allocations(open_one).accepted == 1
    assert ingest_allocations({**open_one, "observed_until": "2026-10-10T00:40:00Z"}).accepted == 1
    assert ingest_allocations(open_one).duplicates == 1
    assert [item.quantity for item in found()] == [Decimal(4800)]  # 2 x 2,400 s
    assert ingest_allocations(unknown()).accepted == 1
    assert ingest_allocations({**open_one, "observed_until": "2026-10-10T03:00:00Z"}).duplicates == 1
    assert [item.quantity for item in found()] == [Decimal(7200)]


def test_a_report_that_knows_the_share_takes_its_place() -> None:
    ingest_allocations(unknown())
    assert ingest_allocations(unknown(device_fraction="0.25", share_unknown=None)).accepted == 1
    assert found() == []
    assert report_of().gpu_seconds["charged"] == Decimal(1800)  # 2 x 1/4 x 3,600 s
    assert ingest_allocations(unknown()).duplicates == 1  # what is known stays known


def test_a_declared_share_is_billed_of_what_came_and_of_what_comes() -> None:
    ingest_allocations(unknown(1), unknown(2, share_unknown="something else"))
    assert declare("0.25", why=WHY) == 1
    ingest_allocations(unknown(3))
    assert sorted(GpuAllocation.objects.values_list("allocation_id", "device_fraction")) == [
        ("alloc-1", Decimal("0.25")), ("alloc-3", Decimal("0.25")),
    ]  # fmt: skip
    assert [item.quantity for item in found()] == [Decimal(7200)]  # only that of the other reason
    assert QuarantinedRecord.objects.count() == 0


def test_an_open_allocation_whose_share_was_declared_goes_on_with_it() -> None:
    ingest_allocations(unknown(ended_at=None, observed_until="2026-10-10T00:30:00Z"))
    declare("0.5", product="NVIDIA-H800")
    assert ingest_allocations(unknown()).accepted == 1
    row = GpuAllocation.objects.get()
    assert (row.device_fraction, row.ended_at) == (Decimal("0.5"), datetime(2026, 10, 10, 1, tzinfo=UTC))
    assert found() == []


def test_what_is_declared_to_be_no_accelerator_ends_and_does_not_come_again() -> None:
    nic = {"resource": "example.com/nic", "share_unknown": "an extended resource that nobody knows"}
    ingest_allocations(unknown(1, **nic))
    assert [(item.kind, item.quantity) for item in found()] == [("unknown_share", Decimal(7200))]
    assert declare(None, resource="example.com/nic") == 1
    ingest_allocations(unknown(2, **nic))
    assert found() == []
    assert (GpuAllocation.objects.count(), UnknownShare.objects.filter(settled="no accelerator").count()) == (0, 2)


def test_a_declaration_is_made_once_and_says_why() -> None:
    for wrong in ({"reason": " "}, {"cluster": ""}):
        with pytest.raises(DeclarationError):
            declare(None, **wrong)
    for fraction in ("0", "1.01", "NaN", "0.1234567890123"):
        with pytest.raises(DeclarationError):
            declare(fraction)
    declare("0.25")
    with pytest.raises(DeclarationError, match="was declared by ops"):
        declare("0.5")


def test_a_month_is_closed_without_it_once_somebody_answers_for_it_and_a_later_share_is_late_usage() -> None:
    """October closes with a waiver; declared in November, the half hour of a device is billed with November."""
    ingest_allocations(unknown(quantity=1))
    [item] = found()
    exception_waive(period=period_of("2026-10"), kind=item.kind, subject=item.subject, reason="too small", actor="ops",
                    now=NOVEMBER)  # fmt: skip
    period_close(month="2026-10", actor="ops", now=NOVEMBER)
    assert period_of("2026-10").status == "closed"
    declare("0.5")
    period_open(month="2026-11")
    ingest_allocations(allocation_record(9, started_at="2026-11-10T00:00:00Z", ended_at="2026-11-10T01:00:00Z",
                                         observed_until="2026-11-10T01:00:00Z", quantity=1))  # fmt: skip
    assert report_of("2026-11", DECEMBER).closable
    period_close(month="2026-11", actor="ops", now=DECEMBER)
    total = period_of("2026-11").invoices.get().total
    assert total == Decimal("15.00")  # 1 GPU-hour of November and half a one of October, at 10.00


def test_what_is_reported_of_a_closed_month_blocks_the_next_one_whole() -> None:
    ingest_allocations(allocation_record(7))
    period_open(month="2026-10")
    period_close(month="2026-10", actor="ops", now=NOVEMBER)
    ingest_allocations(unknown())
    assert [(item.quantity, item.blocks) for item in found("2026-11", DECEMBER)] == [(Decimal(7200), True)]


def test_a_resource_of_an_older_agent_blocks_with_its_units_until_it_is_declared() -> None:
    report = gateway()

    def post(**agent: Any) -> None:
        body = {"agent": {"name": "agent-1", "cluster": "hq-1", **agent}, "watermark": "2026-11-01T00:00:00Z",
                "allocations": []}  # fmt: skip
        assert report("usage/gpu-allocations", body).status_code == 200

    post(unknown_resources={"koordinator.sh/gpu-core": 50, "example.com/nic": 2})
    rewrite("UPDATE usage_agentdiagnostic SET at = '2026-10-15T00:00:00Z'")
    assert [(item.subject, item.quantity, item.unit, item.blocks) for item in found()] == [
        ("hq-1/example.com/nic", 2, "resources", True), ("hq-1/koordinator.sh/gpu-core", 50, "resources", True),
    ]  # fmt: skip
    for _ in range(2):
        post(no_accelerators=["example.com/nic"])
    assert [item.subject for item in found()] == ["hq-1/koordinator.sh/gpu-core"]


def test_what_an_agent_declares_is_kept_under_the_token_and_under_no_name_that_the_report_gives() -> None:
    person("ops", "admin")
    report = gateway()
    body = {"agent": {"name": "ops", "cluster": "hq-1", "no_accelerators": ["example.com/nic"]}, "allocations": [],
            "watermark": "2026-11-01T00:00:00Z"}  # fmt: skip
    assert report("usage/gpu-allocations", body).status_code == 200
    token = f"token:{ApiToken.objects.get().name}"
    entry = AuditEntry.objects.get(action="share_declare")
    assert (entry.actor, entry.detail["acting"]["token"]) == (token, ApiToken.objects.get().pk)
    assert entry.detail["reason"] == "the agent ops was started with --no-accelerator"
    assert ShareDeclaration.objects.get().declared_by == token


def test_a_file_may_say_that_a_share_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "use.csv"
    path.write_text(
        "cluster,namespace,pod,pod_uid,resource,quantity,device_fraction,accelerator,started_at,ended_at\n"
        "hq-1,nlp-train,p,u,nvidia.com/gpu,1,unknown,NVIDIA-H800,2026-10-10T00:00:00Z,2026-10-10T01:00:00Z\n"
    )
    call_command("import_usage", "gpu", str(path))
    assert [(item.quantity, item.amount) for item in found()] == [(Decimal(3600), Decimal("10.00"))]
    assert declare("1") == 1
    assert report_of().gpu_seconds["charged"] == Decimal(3600)


def test_the_command_lists_and_declares(capsys: pytest.CaptureFixture[str]) -> None:
    ingest_allocations(unknown())
    call_command("gpu_share")
    assert "hq-1/nlp-train/train-1 2026-10-10 00:00 2 nvidia.com/gpu on NVIDIA-H800: 16384 MiB" in capsys.readouterr().out
    with pytest.raises(SystemExit) as refused:
        call_command("gpu_share", declare=["hq-1", "nvidia.com/gpu"], reason="x")
    assert refused.value.code == 2
    person("ops", "admin")
    call_command("gpu_share", declare=["hq-1", "nvidia.com/gpu"], fraction="0.25", reason="a quarter", by="ops")
    assert "1 reports settled" in capsys.readouterr().out
    assert found() == []
