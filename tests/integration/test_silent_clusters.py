"""A cluster that rules name and of which nothing was reported blocks the close; whatever was reported of it counts."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.usage.services import watch_notes_add, watermark_advance
from metering.intervals import Interval
from tests.factories import allocation_record, apply, ingest_allocations, ingest_capacity

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
MONTH_S, DAY_S = 31 * 86400, 86400


def owned(**changed: Any) -> dict[str, Any]:
    return {"cluster": "hq-2", "namespace": "nlp-*", "team": "nlp", "valid_from": "2026-01-01", **changed}


def set_up(directory: Path, *ownership: dict[str, Any], platform: Any = None) -> None:
    apply(directory, watched=False, ownership=list(ownership), platform=platform)


def silent() -> list[tuple[str, Decimal, str, bool]]:
    report = build_report(period_of("2026-10"), now=NOVEMBER)
    found = [item for item in report.exceptions if item.kind == "silent_cluster"]
    return [(item.subject, item.quantity, item.unit, item.blocks) for item in found]


def close() -> None:
    period_close(month="2026-10", actor="fin", now=NOVEMBER)


def test_an_owned_cluster_of_which_nothing_was_reported_blocks_the_close_until_somebody_answers(tmp_path: Path) -> None:
    set_up(tmp_path, owned(), owned(namespace="other"))
    assert silent() == [("hq-2", Decimal(MONTH_S), "seconds", True)]
    with pytest.raises(CloseRefusedError) as refused:
        close()
    assert [item.kind for item in refused.value.report.blocking] == ["silent_cluster"]
    exception_waive(period=period_open(month="2026-10"), kind="silent_cluster", subject="hq-2", reason="not in use yet",
                    actor="lin", now=NOVEMBER)  # fmt: skip
    close()


def test_a_cluster_of_the_platform_counts_as_well(tmp_path: Path) -> None:
    set_up(tmp_path, platform=[{"cluster": "hq-3", "namespace": "serving", "team": "platform"}])
    assert silent() == [("hq-3", Decimal(MONTH_S), "seconds", True)]


@pytest.mark.parametrize(("dates", "seconds"), [
    ({"valid_from": "2026-10-31"}, DAY_S), ({"valid_until": "2026-10-02"}, DAY_S),
    ({"valid_from": "2026-11-01"}, None), ({"valid_until": "2026-10-01"}, None),
])  # fmt: skip
def test_only_the_time_of_the_rules_counts(tmp_path: Path, dates: dict[str, str], seconds: int | None) -> None:
    set_up(tmp_path, owned(**dates))
    assert [item[1] for item in silent()] == ([] if seconds is None else [Decimal(seconds)])


@pytest.mark.parametrize("pattern", ["*", "hq-?", "hq-[0-9]"])
def test_a_pattern_names_no_cluster(tmp_path: Path, pattern: str) -> None:
    set_up(tmp_path, owned(cluster=pattern))
    assert silent() == []


def by_file() -> None:
    ingest_allocations(allocation_record(1, cluster="hq-2"), from_file=True)


def by_an_agent_that_saw_no_pod() -> None:
    watermark_advance(agent="gpu-hq-2", cluster="hq-2", watermark=NOVEMBER)


def by_backfill() -> None:
    october = Interval(datetime(2026, 10, 1, tzinfo=UTC), NOVEMBER)
    watch_notes_add(agent="backfill", cluster="hq-2", kind="filled", stretches=[october])


def by_its_nodes() -> None:
    day = {"from": "2026-10-10T00:00:00Z", "until": "2026-10-11T00:00:00Z"}
    ingest_capacity(cluster="hq-2", node="n", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=8, **day)


@pytest.mark.parametrize("report", [by_file, by_an_agent_that_saw_no_pod, by_backfill, by_its_nodes])
def test_whatever_was_reported_of_a_cluster_counts(tmp_path: Path, report: Callable[[], None]) -> None:
    set_up(tmp_path, owned())
    assert len(silent()) == 1
    report()
    assert silent() == []


def test_what_was_reported_of_another_month_does_not_count(tmp_path: Path) -> None:
    set_up(tmp_path, owned())
    end = "2026-09-10T02:00:00Z"
    ingest_allocations(
        allocation_record(1, cluster="hq-2", started_at="2026-09-10T00:00:00Z", ended_at=end, observed_until=end)
    )
    watermark_advance(agent="old", cluster="hq-2", watermark=datetime(2026, 9, 12, tzinfo=UTC))
    assert len(silent()) == 1
