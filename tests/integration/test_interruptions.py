"""Who pays for holds that preemption, eviction or the loss of a node ended: to the cent, and in the account of capacity."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from billing.closing.report import build_report
from billing.corrections.note_lines import NoteError
from billing.corrections.services.sla import LostWork, sla_credit_draft
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from billing.portal import drilldown
from billing.portal.selectors import team_rows
from billing.rates.models import InterruptionPolicy
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, Membership
from billing.usage.models import AllocationInterruption
from metering.__main__ import main as metering
from tests.factories import allocation_record, apply, ingest_allocations, ingest_capacity, person, signed_in
from tests.factories.corrections import OCTOBER_OVER, proofs_hold, wanted
from tests.factories.corrections import bill as close
from tests.factories.pages import file_rows, statements_of

pytestmark = pytest.mark.django_db

POLICY = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": {"cap_hours": "1"},
          "evicted": "team"}  # fmt: skip


def hold(number: int, start: str, end: str | None, reason: str | None, **changed: Any) -> dict[str, Any]:
    """Eight devices at 10 an hour unless something else is said; times are of October in UTC."""
    at = lambda text: f"2026-{text}:00Z" if len(text) > 8 else f"2026-10-{text}:00Z"  # noqa: E731
    seen = {"ended_at": at(end), "observed_until": at(end)} if end else {"ended_at": None}
    return allocation_record(number, **{"started_at": at(start), "end_reason": reason, **seen, **changed})


def lines(month: str = "2026-10") -> list[tuple[str, ...]]:
    document = json.loads(Invoice.objects.get(period__month=month, team__code="nlp").document)
    return [
        (line["kind"], line["reason"] or "", line["quantity"], line["unit_price"], line["amount"])
        for line in document["lines"]
    ]


def test_without_a_policy_the_team_pays_for_everything(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(hold(1, "10T00:00", "10T03:30", "preempted"))
    close()
    assert lines() == [("gpu", "", "28.000000", "10.0000", "280.00")]


def test_the_platform_carries_what_it_preempted_and_one_hour_of_a_lost_node(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        hold(1, "10T00:00", "10T03:30", "preempted"),  # 28 device-hours, all of it carried
        hold(2, "11T00:00", "11T03:30", "node lost"),  # the last of 3.5 hours: 8 device-hours
        hold(3, "12T00:00", "12T00:15", "node lost", quantity=4),  # shorter than the cap: 1 device-hour
        hold(4, "13T00:00", "13T02:00", "evicted"),  # the team's by this policy
        hold(5, "14T00:00", "14T02:00", "completed"),
    )
    close()
    assert lines() == [
        ("gpu", "", "89.000000", "10.0000", "890.00"),
        ("interruption", "node lost", "9.000000", "-10.0000", "-90.00"),
        ("interruption", "preempted", "28.000000", "-10.0000", "-280.00"),
    ]
    assert Invoice.objects.get().total == Decimal("520.00")
    assert proofs_hold("2026-10")


def test_a_policy_applies_to_jobs_of_slurm_that_came_in_a_file(tmp_path: Path) -> None:
    """Eight devices from 2026-10-10T00:00Z (1791590400): preempted after 3.5 hours, 28 device-hours; then 2 hours, 16."""
    apply(tmp_path, interruption_policies=[POLICY])
    report, usage = tmp_path / "sacct.txt", tmp_path / "usage.csv"
    report.write_text(
        "JobIDRaw|Account|User|State|Submit|Start|End|AllocTRES|JobName\n"
        "1|nlp-train|ann|PREEMPTED|1791590000|1791590400|1791603000|gres/gpu=8|toy|sweep\n"
        "2|nlp-train|ann|COMPLETED|1791590000|1791603000|1791610200|gres/gpu=8|train\n"
    )
    options = ["--cluster", "hq-1", "--accelerators", "gpu=NVIDIA-H800", "--out", str(usage)]
    assert metering(["slurm", str(report), *options]) == 0
    call_command("import_usage", "gpu", str(usage))
    close()
    assert lines() == [
        ("gpu", "", "44.000000", "10.0000", "440.00"), ("interruption", "preempted", "28.000000", "-10.0000", "-280.00"),
    ]  # fmt: skip


def capacity(cluster: str = "hq-1") -> None:
    day = {"from": "2026-10-10T00:00:00Z", "until": "2026-10-11T00:00:00Z"}
    ingest_capacity(
        cluster=cluster, node="n1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=8, **day
    )


def test_carried_time_is_the_platforms_in_the_account_of_capacity(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[{**POLICY, "preempted": {"cap_hours": "0.5"}}])
    capacity()
    ingest_allocations(hold(1, "10T00:00", "10T03:30", "preempted"))
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert {name: int(value or 0) for name, value in report.gpu_seconds.items()} == {
        "charged": 8 * 10_800, "platform": 8 * 1800, "unowned": 0, "unpriced": 0, "idle": 8 * 73_800, "capacity": 8 * 86_400,
    }  # fmt: skip
    assert report.closable


def test_accounts_and_exports_are_exact_however_many_digits_it_takes(tmp_path: Path) -> None:
    """999,999 thirds of a device for 30 days less a microsecond: 863999135998.802667864000333333 device-seconds.

    The platform carries all of it, to the last of the 30 digits; at 10 an hour it is 2,399,997,599.9967.
    """
    apply(tmp_path, interruption_policies=[POLICY])
    end = "2026-10-30T23:59:59.999999Z"
    ingest_allocations(
        hold(1, "01T00:00", None, "preempted", quantity=999_999, device_fraction="0.333333333333", ended_at=end,
             observed_until=end)
    )  # fmt: skip
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert (report.gpu_seconds["charged"], report.gpu_seconds["platform"]) == (
        Decimal(0), Decimal("863999135998.802667864000333333")
    )  # fmt: skip
    close()
    assert [line[-1] for line in lines()] == ["2399997600.00", "-2399997600.00"]
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    assert sum(Decimal(row["BilledCost"]) for row in rows if row["ChargeCategory"] == "Usage") == Decimal("2399997600.00")


def test_the_policy_in_force_at_the_end_of_the_hold_decides(tmp_path: Path) -> None:
    later = {"name": "sla-v2", "valid_from": "2026-10-11T00:00:00Z", "preempted": {"cap_hours": "0.25"}}
    apply(tmp_path, interruption_policies=[POLICY, later])
    ingest_allocations(hold(1, "10T22:00", "10T23:00", "preempted"), hold(2, "10T23:00", "11T01:00", "preempted"))
    close()
    assert lines()[1:] == [
        ("interruption", "preempted", "8.000000", "-10.0000", "-80.00"),
        ("interruption", "preempted", "2.000000", "-10.0000", "-20.00"),
    ]


def test_an_estimated_interruption_that_was_none_is_not_carried(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "10T00:00", "10T03:00", "preempted", end_estimated=True))
    assert AllocationInterruption.objects.count() == 1
    ingest_allocations(hold(1, "10T00:00", "10T02:30", "completed"))
    close()
    assert lines() == [("gpu", "", "20.000000", "10.0000", "200.00")]


def test_exports_carry_the_line_as_a_credit_split_over_its_hours(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "11T00:00", "11T03:30", "node lost"), hold(2, "12T00:00", "12T02:00", "completed"))
    close()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    credits = [row for row in rows if row["ChargeCategory"] == "Credit"]
    assert [(row["ChargePeriodStart"], Decimal(row["BilledCost"])) for row in credits] == [
        ("2026-10-11T02:00:00Z", Decimal(-40)), ("2026-10-11T03:00:00Z", Decimal(-40)),
    ]  # fmt: skip
    assert {row["ChargeDescription"] for row in credits} == {
        "Carried by the platform, node lost, by policy sla-v1 on NVIDIA-H800 for hq-1/nlp-train"
    }
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"))
    assert "interruptions carried by the platform" in (tmp_path / "journal.csv").read_text()
    call_command("export_invoices", "2026-10", "--out", str(tmp_path))
    assert list(tmp_path.glob("*.pdf"))


def test_a_policy_is_published_once_and_audited(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    apply(tmp_path, interruption_policies=[POLICY])
    assert InterruptionPolicy.objects.get().rules == {
        "preempted": {"payer": "platform"}, "node lost": {"payer": "cap", "hours": "1"}, "evicted": {"payer": "team"},
    }  # fmt: skip
    assert AuditEntry.objects.filter(action="interruption_policy_publish").count() == 1
    with pytest.raises(SetUpFileError, match="differs in rules"):
        apply(tmp_path, interruption_policies=[{**POLICY, "preempted": "team"}])


def test_a_policy_that_would_change_a_closed_month_is_refused(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(hold(1, "10T00:00", "10T03:30", "preempted"))
    close()
    with pytest.raises(SetUpFileError, match="2026-10"):
        apply(tmp_path, interruption_policies=[POLICY])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preempted": "nobody"}, "interruption_policies[0].preempted"),
        ({"node_lost": {"cap_hours": "0"}}, "interruption_policies[0].node_lost.cap_hours"),
        ({"node_lost": {"hours": "1"}}, "interruption_policies[0].node_lost.cap_hours"),
        ({"completed": "platform"}, "interruption_policies[0].completed"),
    ],
)
def test_a_rule_that_says_nothing_clear_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SetUpFileError) as refused:
        apply(tmp_path, interruption_policies=[{**POLICY, **changed}])
    assert message in str(refused.value)


def test_the_line_opens_down_to_the_holds_that_make_it(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        hold(1, "11T00:00", "11T03:30", "node lost"), hold(2, "12T00:00", "12T00:15", "node lost", quantity=4),
        hold(3, "14T00:00", "14T02:00", "completed"),
    )  # fmt: skip
    close()
    month = statements_of()
    (row,) = team_rows(month)
    assert (row.gpu, row.adjustments, row.total) == (Decimal("450.00"), Decimal("-90.00"), Decimal("360.00"))
    line = next(item for item in month.statements[0].lines if item.key.kind == "interruption")
    scope = drilldown.scope_of(line, period_of("2026-10"))
    parts = drilldown.workloads(line, scope).parts
    assert [(part.facts["job"], part.quantity, part.amount) for part in parts] == [
        ("pod/uid-1", Decimal("8.000000"), Decimal("-80.00")), ("pod/uid-2", Decimal("1.000000"), Decimal("-10.00")),
    ]  # fmt: skip
    (held,) = drilldown.holds(line, scope, "pod/uid-1", parts[0]).parts
    assert (held.facts["first"], held.facts["last"]) == (
        datetime(2026, 10, 11, 2, 30, tzinfo=UTC), datetime(2026, 10, 11, 3, 30, tzinfo=UTC),
    )  # fmt: skip
    user = User.objects.create_user("lin")
    Membership.objects.create(user=user, role="finance")
    client = signed_in(user)
    page = client.get(f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10"}).content.decode()
    assert "Interruption credits" in page
    assert "Node lost" in page
    assert "sla-v1" in page


def test_what_the_platform_carried_is_not_credited_once_more_as_lost_work(tmp_path: Path) -> None:
    """280.00 charged for 28 GPU-hours, one hour of 8 devices (80.00) carried: 200.00 can be credited, 20.08 hours not."""
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "10T00:00", "10T03:30", "node lost"))
    close()
    person("sam", "finance")
    number = str(Invoice.objects.get().number)
    too_much = LostWork(8, Decimal("2.51"), Decimal(4))  # 20.08 GPU-hours, 200.80
    with pytest.raises(NoteError, match=r"200\.80 is asked for, 280\.00 was charged and the platform carried 80\.00"):
        sla_credit_draft(number=number, position=1, lost=too_much, wanted=wanted("sla"))
    rest = LostWork(8, Decimal("2.5"), Decimal(4))
    assert sla_credit_draft(number=number, position=1, lost=rest, wanted=wanted("sla")).pk is not None
