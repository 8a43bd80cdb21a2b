"""The explorer counts jobs: what a job is, and what it cost."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict

from billing.explorer.results import Group
from billing.explorer.selectors import Explorer
from tests.factories import SET_UP, apply, ingest_allocations
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)
EVAL = {"quantity": 1, "workload": {"kind": "Job", "name": "eval"}}


def asked(more: str) -> tuple[dict[str, Decimal | None], Group]:
    """Jobs by group, and the total."""
    reader = Explorer(frozenset({"nlp"}), NOW, "Asia/Shanghai")
    found = reader.explore(reader.asked(QueryDict(f"month=2026-10&column=jobs&column=per_job&{more}")))
    return {group.names[0]: group.cell("jobs") for group in found.groups}, found.total


def test_jobs_of_one_name_in_two_clusters_are_two_jobs(tmp_path: Path) -> None:
    """eval takes an hour in hq-1, 10.00, and half an hour in the same namespace of hq-2, 5.00; pretrain takes 1.5, 15.00."""
    there = {"cluster": "hq-2", "namespace": "nlp-*", "team": "nlp", "valid_from": "2026-01-01"}
    apply(tmp_path, ownership=[*SET_UP["ownership"], there])
    ingest_allocations(
        hold(1, "2026-10-10T02:00:00Z", "2026-10-10T03:00:00Z", **EVAL),
        hold(2, "2026-10-12T02:00:00Z", "2026-10-12T02:30:00Z", cluster="hq-2", **EVAL),
        hold(3, "2026-10-12T02:00:00Z", "2026-10-12T03:30:00Z", quantity=1, workload={"kind": "Job", "name": "pretrain"}),
    )  # fmt: skip
    answers = {by: asked(f"by={by}") for by in ("cluster", "namespace", "job")}
    assert {by: jobs for by, (jobs, _) in answers.items()} == {
        "cluster": {"hq-1": 2, "hq-2": 1}, "namespace": {"nlp-train": 3}, "job": {"Job/eval": 2, "Job/pretrain": 1},
    }  # fmt: skip
    assert {(one.cell("jobs"), one.cell("per_job")) for _, one in answers.values()} == {(3, Decimal("10.0000"))}
    assert asked("by=job&cluster=hq-2")[0] == {"Job/eval": 1}
