"""A part of a line costs the same on the drill-down, in a split by workload, and in FOCUS: all readers cut usage alike.

NVIDIA-H800 costs 10.0000 per GPU-hour on demand.
"""

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from billing.budgets.spending import spent_in
from billing.corrections.services.retroactive import retroactive_acknowledge, retroactive_approve, retroactive_propose
from billing.exports.services.focus import focus_export
from billing.invoices.selectors import period_of
from billing.portal import drilldown
from billing.portal.splits import Seen, by_job
from billing.portal.statements import MonthStatements, StatementLine
from billing.rating.selectors import reference_data_known
from metering.intervals import Interval
from tests import factories
from tests.factories import AFTER, allocation_record, apply, ingest_allocations
from tests.factories.corrections import IN_NOVEMBER, bill, people
from tests.factories.efficiency import BANDS, measured
from tests.factories.pages import file_rows, statements_of

pytestmark = pytest.mark.django_db
HOURS = {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "12",
         "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01"}  # fmt: skip
SLA = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform"}
Parts = dict[tuple[str, str], dict[str, Decimal]]
"""Amounts by kind and reason of the line, then by workload."""


def ran(number: int, start: str, end: str, devices: int = 1, **changed: object) -> None:
    """One device of nlp-train in October, unless something else is said; times are UTC."""
    at = {"started_at": f"2026-10-{start}:00Z", "ended_at": f"2026-10-{end}:00Z", "observed_until": f"2026-10-{end}:00Z"}
    ingest_allocations(allocation_record(number, quantity=devices, **at, **changed))


def closed() -> None:
    bill("2026-10", AFTER)


def named(line: StatementLine) -> tuple[str, str]:
    return line.key.kind, line.key.reason


def drilled(month: MonthStatements) -> Parts:
    """What the page of each line says of workloads."""
    found: Parts = {}
    for line in month.statements[0].lines:
        if line.key.reason == "unused":
            continue
        jobs = None
        if line.key.kind == "efficiency":
            said = month.verdicts(month.statements[0].team)
            jobs = [one.job for one in said if (one.policy, one.reason) == (line.key.policy, line.key.reason)]
        parts = drilldown.workloads(line, drilldown.scope_of(line, period_of("2026-10")), jobs).parts
        found[named(line)] = {part.facts["job"]: part.amount for part in parts}
    return found


def split(month: MonthStatements) -> Parts:
    """What the page of splits says of workloads."""
    close_seq = month.period.close_seq or 0
    seen = Seen(Interval(month.period.start, month.period.end), "2026-10", close_seq, reference_data_known(close_seq))
    pieces = by_job(month.statements[0].lines, seen, month.verdicts(month.statements[0].team))
    found: Parts = defaultdict(lambda: defaultdict(Decimal))
    for piece in pieces:
        if piece.line.key.reason != "unused":
            found[named(piece.line)][piece.job] += piece.amount
    return {name: dict(jobs) for name, jobs in found.items()}


def exported(directory: Path) -> Parts:
    """What FOCUS says of resources: `BilledCost`, of what a commitment pays for `EffectiveCost`."""
    focus_export(month="2026-10", directory=directory)
    found: Parts = defaultdict(lambda: defaultdict(Decimal))
    for row in file_rows(directory / "focus-cost-and-usage-2026-10.csv"):
        status = row["CommitmentDiscountStatus"]
        if row["ChargeCategory"] == "Purchase" or status == "Unused":
            continue
        reason = "used" if status else {"Credit": "reward", "Adjustment": "penalty"}.get(row["ChargeCategory"], "")
        kind = "commitment" if status else "efficiency" if reason else "gpu"
        job = row["ResourceId"].removeprefix("hq-1/nlp-train/")
        found[kind, reason][job] += Decimal(row["EffectiveCost" if status else "BilledCost"])
    return {name: dict(jobs) for name, jobs in found.items()}


def test_hours_that_were_bought_are_used_up_by_the_workload_that_ran_first(tmp_path: Path) -> None:
    """12 hours are bought. uid-1 uses 10 on the 5th, uid-2 10 on the 6th: 2 of them bought, 8 on demand."""
    apply(tmp_path, commitments=[HOURS])
    ran(1, "05T00:00", "05T10:00")
    ran(2, "06T00:00", "06T10:00")
    closed()
    month = statements_of()
    expected = {
        ("commitment", "used"): {"pod/uid-1": Decimal("80.00"), "pod/uid-2": Decimal("16.00")},
        ("gpu", ""): {"pod/uid-2": Decimal("80.00")},
    }
    assert exported(tmp_path / "focus") == expected
    assert drilled(month) == expected
    assert split(month) == expected


def test_the_days_and_pods_of_hours_that_were_bought_are_those_on_which_they_were_used(tmp_path: Path) -> None:
    """In Shanghai uid-1 runs on the 5th from 08:00 to 18:00, uid-2 on the 6th."""
    apply(tmp_path, commitments=[HOURS])
    ran(1, "05T00:00", "05T10:00")
    ran(2, "06T00:00", "06T10:00")
    closed()
    lines = {named(line): line for line in statements_of().statements[0].lines}
    used, beyond = lines["commitment", "used"], lines["gpu", ""]
    scope = drilldown.scope_of(used, period_of("2026-10"))
    days = drilldown.days_allocated(used, scope).parts
    assert [(str(part.facts["day"]), part.quantity, part.amount) for part in days] == [
        ("2026-10-05", Decimal("10.000000"), Decimal("80.00")), ("2026-10-06", Decimal("2.000000"), Decimal("16.00")),
    ]  # fmt: skip
    scope = drilldown.scope_of(beyond, period_of("2026-10"))
    assert [(str(part.facts["day"]), part.amount) for part in drilldown.days_allocated(beyond, scope).parts] == [
        ("2026-10-06", Decimal("80.00"))
    ]
    (job,) = drilldown.workloads(beyond, scope).parts
    (held,) = drilldown.holds(beyond, scope, job.facts["job"], job).parts
    assert (held.facts["allocation_id"], held.quantity, held.amount) == ("alloc-2", Decimal("8.000000"), Decimal("80.00"))
    assert (held.facts["first"], held.facts["last"]) == (
        datetime(2026, 10, 6, 2, tzinfo=UTC), datetime(2026, 10, 6, 10, tzinfo=UTC),
    )  # fmt: skip


def test_a_penalty_is_shared_by_the_time_that_its_policy_judged(tmp_path: Path) -> None:
    """`first` is in force until the 16th, Shanghai. Two jobs run 10 hours under it, both at 10 %: 20 % of 100.00 each.

    The first of them runs 20 hours more from the 20th, at 60 %, under `second`: a reward of 10 % of 200.00.
    """
    policies = [
        {**BANDS, "name": "first"}, {**BANDS, "name": "second", "valid_from": "2026-10-16"},
    ]  # fmt: skip
    apply(tmp_path, efficiency_policies=policies)
    job = {"workload": {"kind": "Job", "name": "one"}}
    for number, start, end, mfu in ((1, "05T00:00", "05T10:00", "0.10"), (2, "06T00:00", "06T10:00", "0.10"),
                                    (3, "20T00:00", "20T20:00", "0.60")):  # fmt: skip
        ran(number, start, end, **({} if number == 2 else job))
        span = [datetime.fromisoformat(f"2026-10-{at}:00+00:00") for at in (start, end)]
        measured(number, mfu, mfu, *span, gpus=1)
    closed()
    month = statements_of()
    expected = {
        ("gpu", ""): {"Job/one": Decimal("300.00"), "pod/uid-2": Decimal("100.00")},
        ("efficiency", "penalty"): {"Job/one": Decimal("20.00"), "pod/uid-2": Decimal("20.00")},
        ("efficiency", "reward"): {"Job/one": Decimal("-20.00")},
    }
    assert exported(tmp_path / "focus") == expected
    assert drilled(month) == expected
    assert split(month) == expected


def test_a_commitment_pays_for_no_workload_that_the_platform_carries(tmp_path: Path) -> None:
    """uid-1 is preempted after 10 hours at 10.00, which it gets back; uid-2 uses 10 of the 12 hours bought at 8.00."""
    apply(tmp_path, commitments=[HOURS], interruption_policies=[SLA])
    ran(1, "05T00:00", "05T10:00", end_reason="preempted")
    ran(2, "06T00:00", "06T10:00")
    closed()
    month = statements_of()
    expected = {
        ("commitment", "used"): {"pod/uid-2": Decimal("80.00")}, ("gpu", ""): {"pod/uid-1": Decimal("100.00")},
        ("interruption", "preempted"): {"pod/uid-1": Decimal("-100.00")},
    }  # fmt: skip
    assert drilled(month) == split(month) == expected
    rows = exported(tmp_path / "focus")
    assert (rows["commitment", "used"], rows["gpu", ""]) == ({"pod/uid-2": 80}, {"pod/uid-1": 100})


def test_what_the_platform_carries_earns_no_reward_and_costs_no_penalty(tmp_path: Path) -> None:
    """Of 20 hours at 60 % the first 10 are given back: 10 % of 100.00. All 10 hours at 10 % are given back: no penalty."""
    apply(tmp_path, efficiency_policies=[BANDS], interruption_policies=[SLA])
    job, preempted = {"workload": {"kind": "Job", "name": "one"}}, {"end_reason": "preempted"}
    for number, day, mfu, changed in ((1, "05", "0.60", {**job, **preempted}), (2, "06", "0.60", job),
                                      (3, "07", "0.10", preempted)):  # fmt: skip
        ran(number, f"{day}T00:00", f"{day}T10:00", **changed)
        start = datetime.fromisoformat(f"2026-10-{day}T00:00:00+00:00")
        measured(number, mfu, mfu, start, start.replace(hour=10), gpus=1)
    closed()
    month = statements_of()
    (statement,) = month.statements
    assert {one.job: (one.reason, one.effect) for one in month.verdicts(statement.team)} == {
        "Job/one": ("reward", Decimal("-10.00")), "pod/uid-3": ("penalty", Decimal("0.00")),
    }  # fmt: skip
    expected = {
        ("gpu", ""): {"Job/one": Decimal("200.00"), "pod/uid-3": Decimal("100.00")},
        ("efficiency", "reward"): {"Job/one": Decimal("-10.00")},
        ("interruption", "preempted"): {"Job/one": Decimal("-100.00"), "pod/uid-3": Decimal("-100.00")},
    }
    assert drilled(month) == split(month) == expected
    credits = {"Job/one": Decimal("-110.00"), "pod/uid-3": Decimal("-100.00")}
    assert exported(tmp_path / "focus") == {("gpu", ""): expected["gpu", ""], ("efficiency", "reward"): credits}


def test_a_retroactive_owner_is_the_owner_of_daily_spending(tmp_path: Path) -> None:
    """cv held one device for 10 hours in October: 100.00. A change says that it was nlp's."""
    people()
    apply(tmp_path)
    ran(1, "05T00:00", "05T10:00", namespace="cv")
    closed()
    change = retroactive_propose(
        kind="namespace", name="moved", fact={"scope": "hq-1", "name": "cv", "team": "nlp"}, evidence="INC-17",
        valid_from=factories.SHANGHAI_OCTOBER[0], valid_until=None, reason="it was nlp's", actor="sam", now=IN_NOVEMBER,
    )  # fmt: skip
    for team in ("cv", "nlp"):
        retroactive_acknowledge(change_id=change.pk, team=team, actor="lea", now=IN_NOVEMBER)
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    assert [(item.team, item.amount) for item in spent_in([Interval(*factories.SHANGHAI_OCTOBER)])] == [("nlp", 100)]
