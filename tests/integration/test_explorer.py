"""The explorer's figures: exact, equal to lines and documents, and nobody's but the reader's."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict

from billing.closing.services.closing import period_close
from billing.explorer.models import MonthCube
from billing.explorer.query import Query, QueryError, query_of
from billing.explorer.results import Group
from billing.explorer.selectors import Explored, Explorer
from billing.explorer.services import cubes_ready, cubes_refresh
from billing.invoices.models import Invoice
from tests.factories import apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
ZONE = "Asia/Shanghai"
TODAY = date(2026, 11, 3)
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)


@pytest.fixture
def used(tmp_path: Path) -> None:
    """Of nlp one job of 1 h before and 1.5 h after a local midnight, one of 20 minutes the next day, and tokens; cv has 2 h.

    2.833333 h at 10.00 are 28.33 on one line: 10.00 and 18.33 by day, the second day 15.00 and 3.33 by job.
    """
    apply(tmp_path)
    ingest_allocations(
        hold(1, "2026-10-10T15:00:00Z", "2026-10-10T17:30:00Z", quantity=1, queue="gold", priority_class="high",
             pool="spot", workload={"kind": "PyTorchJob", "name": "pretrain"}),
        hold(2, "2026-10-11T02:00:00Z", "2026-10-11T02:20:00Z", quantity=1, workload={"kind": "Job", "name": "eval"}),
        hold(3, "2026-10-11T02:00:00Z", "2026-10-11T04:00:00Z", quantity=1, namespace="cv"),
    )  # fmt: skip
    ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))


def asked(text: str) -> Query:
    return query_of(QueryDict(text), TODAY)


def explored(text: str, *teams: str, now: datetime = NOW) -> Explored:
    MonthCube.objects.all().delete()
    return Explorer(frozenset(teams or ("nlp", "cv")), now, ZONE).explore(asked(text))


def bars(group: Group, found: Explored) -> dict[str, Decimal]:
    return {step.name: bar for step, bar in zip(found.steps, group.bars, strict=True) if bar}


def totals(found: Explored) -> dict[tuple[str, ...], Decimal]:
    return {group.names: group.total for group in found.groups}


def test_a_line_is_shared_out_over_its_days_and_each_day_over_its_jobs(used: None) -> None:
    found = explored("month=2026-10&by=team&by=job")

    shown = {group.names: bars(group, found) for group in found.groups}
    assert shown == {
        ("nlp", "PyTorchJob/pretrain"): {"2026-10-10": Decimal("10.00"), "2026-10-11": Decimal("15.00")},
        ("cv", "pod/uid-3"): {"2026-10-11": Decimal("20.00")},
        ("nlp", ""): {"2026-10-15": Decimal("10.80")},
        ("nlp", "Job/eval"): {"2026-10-11": Decimal("3.33")},
    }
    assert [group.names for group in found.groups] == [*shown]
    assert found.total.total == Decimal("59.13")


@pytest.mark.parametrize(("by", "expected"), [
    ("team", {"nlp": "39.13", "cv": "20.00"}),
    ("namespace", {"nlp-train": "28.33", "cv": "20.00", "": "10.80"}),
    ("queue", {"": "34.13", "gold": "25.00"}),
    ("tier", {"": "34.13", "high": "25.00"}),
    ("pool", {"": "34.13", "spot": "25.00"}),
    ("cluster", {"hq-1": "48.33", "": "10.80"}),
    ("site", {"": "59.13"}),
    ("accelerator", {"NVIDIA-H800": "48.33", "": "10.80"}),
    ("model", {"": "48.33", "llama-3-8b": "10.80"}),
    ("consumer", {"": "48.33", "nlp-key-1": "10.80"}),
    ("kind", {"gpu": "48.33", "tokens": "10.80"}),
])  # fmt: skip
def test_every_dimension_adds_up_to_the_same_total(used: None, by: str, expected: dict[str, str]) -> None:
    found = explored(f"month=2026-10&by={by}")

    assert totals(found) == {(name,): Decimal(amount) for name, amount in expected.items()}


@pytest.mark.parametrize(("metric", "expected"), [
    ("gpu_hours", {"nlp": "2.833333", "cv": "2.000000"}),
    ("tokens", {"nlp": "2400000"}),
    ("requests", {"nlp": "1"}),
])  # fmt: skip
def test_usage_can_be_asked_for_instead_of_cost(used: None, metric: str, expected: dict[str, str]) -> None:
    assert totals(explored(f"month=2026-10&metric={metric}")) == {(name,): Decimal(n) for name, n in expected.items()}


def test_unit_costs_are_cost_over_the_usage_it_paid_for(used: None) -> None:
    names = ("gpu_hours", "per_gpu_hour", "per_1000_requests", "per_1m_tokens", "jobs", "per_job")
    columns = "&".join(f"column={name}" for name in names)
    found = explored(f"month=2026-10&{columns}", "nlp")

    cells = {name: found.groups[0].cell(name) for name in found.query.columns}
    assert cells == {
        "gpu_hours": Decimal("2.833333"), "per_gpu_hour": Decimal("9.9988"),  # 28.33 / 2.833333
        "per_1000_requests": Decimal("10800.0000"), "per_1m_tokens": Decimal("4.5000"),
        "jobs": Decimal(2), "per_job": Decimal("14.1650"),
    }  # fmt: skip


@pytest.mark.parametrize(("filters", "expected"), [
    ("team=cv", "20.00"), ("job=PyTorchJob/pretrain&job=Job/eval", "28.33"), ("namespace=∅", "10.80"),
    ("queue=gold&team=cv", "0.00"), ("search=nlp-TRAIN&by=namespace", "28.33"),
    ("search=NLP", "39.13"), ("from=2026-10-11&to=2026-10-11", "38.33"),
    ("kind=tokens&model=llama-3-8b", "10.80"),
])  # fmt: skip
def test_filters_search_and_days_keep_what_they_say(used: None, filters: str, expected: str) -> None:
    month = "" if "from" in filters else "month=2026-10&"
    assert explored(f"{month}{filters}").total.total == Decimal(expected)


def test_a_reader_sees_their_teams_whatever_is_asked(used: None) -> None:
    for asking in ("", "&team=cv", "&by=namespace", "&by=job&search=train"):
        found = explored(f"month=2026-10{asking}", "nlp")
        assert "cv" not in {name for group in found.groups for name in group.names}
    assert explored("month=2026-10&team=cv", "nlp").total.total == 0
    explorer = Explorer(frozenset({"cv"}), NOW, ZONE)
    assert explorer.options(asked("month=2026-10"), ["namespace", "job", "model"], 10) == {
        "namespace": ["cv"], "job": ["pod/uid-3"], "model": [],
    }  # fmt: skip


def test_a_closed_month_stays_what_its_invoices_say_whatever_is_reported_later(used: None) -> None:
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_allocations(
        hold(9, "2026-10-20T00:00:00Z", "2026-10-20T01:00:00Z", quantity=1), now=datetime(2026, 11, 2, tzinfo=UTC)
    )

    found = explored("from=2026-10-01&to=2026-11-30&step=month&by=kind")

    assert {group.names[0]: bars(group, found) for group in found.groups} == {
        "gpu": {"2026-10": Decimal("48.33")}, "tokens": {"2026-10": Decimal("10.80")},
        "late": {"2026-11": Decimal("10.00")},  # evenly over the three days of November so far
    }  # fmt: skip
    assert bars(explored("month=2026-11&by=kind").groups[0], explored("month=2026-11&by=kind")) == {
        "2026-11-01": Decimal("3.34"), "2026-11-02": Decimal("3.33"), "2026-11-03": Decimal("3.33"),
    }  # fmt: skip
    assert found.open_months == ["2026-11"]


def test_a_range_is_compared_with_as_many_days_of_the_one_before(used: None) -> None:
    november = datetime(2026, 11, 11, 4, tzinfo=UTC)  # ten days of November have passed, those of October have 10.00
    ingest_allocations(
        hold(5, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1), now=datetime(2026, 11, 10, tzinfo=UTC)
    )
    MonthCube.objects.all().delete()
    found = Explorer(frozenset({"nlp", "cv"}), november, ZONE).explore(asked("month=2026-11&by=team"))

    assert found.compared is not None
    assert (found.compared.first, found.compared.last) == (date(2026, 10, 1), date(2026, 10, 10))
    group = found.groups[0]
    assert (group.names, group.total, group.before, group.change) == (
        ("nlp",), Decimal("30.00"), Decimal("10.00"), Decimal("20.00"),
    )  # fmt: skip
    assert group.change_ratio == 2


def test_what_was_there_before_and_is_no_more_is_listed(used: None) -> None:
    found = explored("month=2026-11&by=team", now=datetime(2026, 11, 20, 4, tzinfo=UTC))

    assert {group.names[0]: (group.total, group.before) for group in found.groups} == {
        "nlp": (Decimal("0.00"), Decimal("39.13")), "cv": (Decimal("0.00"), Decimal("20.00")),
    }  # fmt: skip


def test_deleted_sums_are_made_again_to_the_same_bytes(used: None) -> None:
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert cubes_refresh() >= 1
    first = {column.name: bytes(column.content) for column in MonthCube.objects.get(month="2026-10").columns.all()}
    MonthCube.objects.all().delete()
    assert cubes_refresh() >= 1
    assert {column.name: bytes(column.content) for column in MonthCube.objects.get(month="2026-10").columns.all()} == first
    assert "amount" in first


@pytest.mark.parametrize("text", [
    "metric=money", "by=person", "by=team&by=job&by=queue", "range=eternity", "from=2026-10-32",
    "from=2026-10-02&to=2026-10-01", "from=2020-01-01&to=2026-10-01", "step=minute", "column=secrets", "sort=luck",
])  # fmt: skip
def test_an_address_that_asks_for_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        asked(text)


@pytest.mark.parametrize("text", [
    "", "range=last-90-days&by=namespace&by=model&team=nlp&team=cv&metric=tokens&step=day", "from=2026-10-01&to=2026-10-05",
    "by=none&column=none&sort=name&search=a+b", "month=2026-10&namespace=%E2%88%85&sort=-per_job&column=jobs&column=share",
])  # fmt: skip
def test_what_an_address_asks_is_written_back_to_the_same_question(text: str) -> None:
    query = asked(text)
    assert query_of(QueryDict(query.address), TODAY) == query


def test_a_month_is_summed_again_where_another_close_or_a_void_document_changed_its_lines(used: None) -> None:
    now = datetime(2026, 11, 3, 4, tzinfo=UTC)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert cubes_ready(["2026-10"], now=now)[0][0].rows > 0
    Invoice.objects.filter(team__code="cv").update(status="void", void_reason="test")
    found = Explorer(frozenset({"nlp", "cv"}), now, ZONE).explore(asked("month=2026-10"))
    assert totals(found) == {("nlp",): Decimal("39.13")}


def test_a_large_month_that_is_not_summed_yet_is_named_and_not_counted_as_nothing(
    used: None, settings: Any
) -> None:
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    settings.CACHE_STATEMENTS_ABOVE_LINES = 1

    found = Explorer(frozenset({"nlp", "cv"}), NOW, ZONE).explore(asked("month=2026-10"))
    assert (found.missing, found.total.total, found.months) == (["2026-10"], Decimal("0.00"), {})

    assert cubes_refresh() >= 1
    found = Explorer(frozenset({"nlp", "cv"}), NOW, ZONE).explore(asked("month=2026-10"))
    assert (found.missing, found.total.total) == ([], Decimal("59.13"))
