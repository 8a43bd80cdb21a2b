"""What agents measured of jobs, hour by hour, and what a close makes of hours without a score."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.services.closing import period_close
from billing.rating.models import EfficiencyVerdict
from billing.usage.models import EfficiencySample as SampleRow
from billing.usage.services import IngestOutcome, efficiency_ingest
from metering.records import EfficiencySample
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.ingest import reports
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import POLICY

pytestmark = pytest.mark.django_db

HOURS = 40


def hour(number: int, **changed: Any) -> dict[str, Any]:
    """A sample of the `number`-th hour of a pod that holds eight devices from midnight of the 10th."""
    day, at = divmod(number, 24)
    next_day, next_at = divmod(number + 1, 24)
    return {
        "cluster": "hq-1", "pod_uid": "uid-1", "start": f"2026-10-{10 + day}T{at:02}:00:00Z",
        "end": f"2026-10-{10 + next_day}T{next_at:02}:00:00Z", "gpu_seconds": "28800", "mfu": "0.55", "hfu": "0.60",
        "dtype": "bf16", "coverage": "1", **changed,
    }  # fmt: skip


def report(*samples: dict[str, Any]) -> IngestOutcome:
    outcome: IngestOutcome = reports(EfficiencySample, efficiency_ingest, *samples)
    return outcome


def no_score(number: int) -> dict[str, Any]:
    return hour(number, mfu=None, hfu=None, coverage="0", reason="no tensor activity was measured to check the report")


def close_with(directory: Path, *samples: dict[str, Any]) -> EfficiencyVerdict:
    apply(directory, efficiency_policies=[POLICY])
    end = "2026-10-11T16:00:00Z"
    ingest_allocations(allocation_record(started_at="2026-10-10T00:00:00Z", ended_at=end, observed_until=end))
    report(*samples)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    return EfficiencyVerdict.objects.get()


def test_why_there_is_no_score_is_kept_with_the_sample() -> None:
    assert report(no_score(0)).accepted == 1
    assert report(no_score(0)).duplicates == 1
    assert SampleRow.objects.get().reason == "no tensor activity was measured to check the report"
    assert report({**no_score(0), "reason": "device shared with another pod"}).conflicts == 1


def test_one_hour_without_a_score_costs_coverage_and_not_the_score(tmp_path: Path) -> None:
    verdict = close_with(tmp_path, no_score(0), *(hour(number) for number in range(1, HOURS)))
    assert (str(verdict.coverage), verdict.reason) == ("0.975000000000", "reward")  # 39 of 40 hours
    assert verdict.minutes == 39 * 60


def test_too_many_hours_without_a_score_leave_a_job_alone(tmp_path: Path) -> None:
    missed = 3
    samples = [no_score(number) if number < missed else hour(number) for number in range(HOURS)]
    verdict = close_with(tmp_path, *samples)
    assert (str(verdict.coverage), verdict.reason) == ("0.925000000000", "neutral:coverage")


def test_a_job_without_any_score_is_missing(tmp_path: Path) -> None:
    verdict = close_with(tmp_path, no_score(0), no_score(1))
    assert (verdict.mfu, verdict.hfu, verdict.reason) == (None, None, "neutral:missing")


def test_a_workload_may_be_named_as_an_allocation_names_it(tmp_path: Path) -> None:
    """Kind and name, or the name alone: the same sample twice."""
    apply(tmp_path, efficiency_policies=[POLICY])
    job = {"kind": "Job", "name": "train", "uid": "u-1"}
    ingest_allocations(
        allocation_record(1, workload=job, started_at="2026-10-10T00:00:00Z", ended_at="2026-10-10T08:00:00Z",
                          observed_until="2026-10-10T08:00:00Z")
    )  # fmt: skip
    report(*({**hour(number), "pod_uid": None, "workload": job} for number in range(8)))
    again = report(*({**hour(number), "pod_uid": None, "workload": "train"} for number in range(8)))
    assert (again.accepted, again.duplicates, again.conflicts) == (0, 8, 0)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    verdict = EfficiencyVerdict.objects.get()
    assert (verdict.job, verdict.reason, verdict.gpu_seconds) == ("Job/train", "reward", 230_400)


def test_a_sample_that_names_pods_of_two_namespaces_scores_one_job_and_leaves_the_other_without(tmp_path: Path) -> None:
    apply(tmp_path, efficiency_policies=[POLICY])
    held = {
        "started_at": "2026-10-10T00:00:00Z", "ended_at": "2026-10-10T08:00:00Z", "observed_until": "2026-10-10T08:00:00Z",
        "workload": {"kind": "Job", "name": "train"},
    }  # fmt: skip
    ingest_allocations(
        allocation_record(allocation_id="a-1", pod_uid="uid-1", namespace="nlp-train", **held),
        allocation_record(allocation_id="a-2", pod_uid="uid-2", namespace="nlp-eval", **held),
    )
    report(*({**hour(number), "pod_uid": None, "workload": "train"} for number in range(8)))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    found = EfficiencyVerdict.objects.order_by("namespace").values_list("namespace", "job", "reason", "gpu_seconds")
    reported = [(*names, int(seconds)) for *names, seconds in found]
    assert reported == [
        ("nlp-eval", "Job/train", "reward", 230_400), ("nlp-train", "Job/train", "neutral:missing", 230_400),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "again",
    [
        [{**hour(number), "pod_uid": None, "workload": "train"} for number in range(4)],
        [hour(0, end="2026-10-10T04:00:00Z", gpu_seconds="115200")],
    ],
    ids=["the pod and its workload", "the same pod in another cut"],
)
def test_time_that_is_measured_twice_counts_once(tmp_path: Path, again: list[dict[str, Any]]) -> None:
    """4 of 8 hours are measured: half, whichever way they are reported again, and no reward of 64 GPU-hours x 10 x 0.10."""
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(trained(1, "Job"))
    assert report(*(hour(number) for number in range(4))).accepted == 4
    assert report(*again).accepted == len(again)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    verdict = EfficiencyVerdict.objects.get()
    assert (verdict.coverage, verdict.minutes, verdict.reason) == (Decimal("0.5"), Decimal(240), "neutral:coverage")
    assert verdict.effect == 0


def test_of_two_samples_of_the_same_time_the_first_is_weighed(tmp_path: Path) -> None:
    """Four hours at 0.55 and four at 0.15 are 0.35; with the hours that came twice it would be 0.56, a reward."""
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(trained(1, "Job"))
    report(*(hour(number) for number in range(4)), *(hour(number, mfu="0.15", hfu="0.15") for number in range(4, 8)))
    report(*({**hour(number, mfu="0.99", hfu="0.99"), "pod_uid": None, "workload": "train"} for number in range(4)))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    verdict = EfficiencyVerdict.objects.get()
    assert (verdict.mfu, verdict.hfu, verdict.reason) == (Decimal("0.35"), Decimal("0.375"), "neutral")


def trained(number: int, kind: str) -> dict[str, Any]:
    """64 GPU-hours of a workload that is called train."""
    return allocation_record(
        allocation_id=f"a-{number}", pod_uid=f"uid-{number}", workload={"kind": kind, "name": "train"},
        started_at="2026-10-10T00:00:00Z", ended_at="2026-10-10T08:00:00Z", observed_until="2026-10-10T08:00:00Z",
    )  # fmt: skip


def of_kind(kind: str, **changed: Any) -> list[dict[str, Any]]:
    workload = {"kind": kind, "name": "train"} if kind else "train"
    return [{**hour(number), "pod_uid": None, "workload": workload, **changed} for number in range(8)]


def effects() -> list[tuple[str, str, str]]:
    rows = EfficiencyVerdict.objects.order_by("job").values_list("job", "reason", "effect")
    return [(job, reason, str(effect)) for job, reason, effect in rows]


def test_two_workloads_of_one_name_and_different_kinds_have_their_own_efficiency(tmp_path: Path) -> None:
    """64 hours at 10.00 each: a tenth off for one, a fifth on top for the other."""
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(trained(1, "Job"), trained(2, "PyTorchJob"))
    assert report(*of_kind("Job"), *of_kind("PyTorchJob", mfu="0.10", hfu="0.15")).accepted == 16
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert effects() == [("Job/train", "reward", "-64.00"), ("PyTorchJob/train", "penalty", "128.00")]


def test_a_kind_that_holds_nothing_scores_nobody_else(tmp_path: Path) -> None:
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(trained(1, "Job"))
    report(*of_kind("PyTorchJob"))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert effects() == []


def test_a_sample_without_a_kind_is_of_whatever_has_the_name(tmp_path: Path) -> None:
    """It scores the first of them, as a sample of two namespaces does."""
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(trained(1, "Job"), trained(2, "PyTorchJob"))
    report(*of_kind(""))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert effects() == [("Job/train", "reward", "-64.00"), ("PyTorchJob/train", "neutral:missing", "0.00")]


@pytest.mark.parametrize(
    ("first", "second", "came"),
    [
        (of_kind("Job"), of_kind("PyTorchJob", mfu="0.10"), "accepted"),
        (of_kind("Job"), of_kind("Job", mfu="0.10"), "conflicts"),
        (of_kind("Job"), of_kind("", mfu="0.10"), "conflicts"),
        (of_kind(""), of_kind("Job", mfu="0.10"), "conflicts"),
        (of_kind(""), of_kind("Job"), "duplicates"),
        ([*of_kind("Job"), *of_kind("PyTorchJob", mfu="0.10")], of_kind("", mfu="0.10"), "duplicates"),
    ],
)
def test_kinds_distinguish_samples_only_where_both_have_one(
    first: list[dict[str, Any]], second: list[dict[str, Any]], came: str
) -> None:
    assert report(*first).accepted == len(first)
    assert getattr(report(*second), came) == 8
    assert SampleRow.objects.count() == len(first) + (8 if came == "accepted" else 0)
