"""The explorer's figures: exact, equal to lines and documents, and nobody's but the reader's."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum

from billing.closing.services.closing import period_close
from billing.explorer import hours
from billing.explorer.models import CubeColumn, MonthCube
from billing.explorer.query import TooFineError
from billing.explorer.selectors import Explorer, open_window
from billing.explorer.services import cubes, cubes_ready, cubes_refresh
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.rating.freshness import freshness
from billing.rating.models import RatingSnapshot
from billing.usage.scope import EVERYTHING
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import bill, credit, draft, part, people
from tests.factories.explorer import IN_DECEMBER, NOW, ZONE, asked, bars, credited, explored, totals, used
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import hold

__all__ = ["credited", "used"]
pytestmark = pytest.mark.django_db


def test_a_day_has_as_many_hours_as_the_clock_of_its_zone(tmp_path: Path) -> None:
    zone = "Europe/Berlin"
    apply(tmp_path, billing={**SET_UP["billing"], "zone": zone})
    ingest_allocations(hold(1, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", quantity=1))  # the clock goes back at 3:00
    MonthCube.objects.all().delete()
    found = Explorer(frozenset({"nlp"}), NOW, zone).explore(asked("from=2026-10-25&to=2026-10-25&step=hour&by=none"))
    assert (len(found.steps), found.charted[0].bars) == (25, [Decimal("10.00")] * 25)
    assert [step.name for step in found.steps][2:4] == ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"]


@pytest.mark.parametrize(("month", "changed", "hours"), [("2026-10", 24, 25), ("2027-03", 27, 23)])
def test_hours_that_were_bought_and_not_used_are_spread_by_the_length_of_each_day(
    tmp_path: Path, month: str, changed: int, hours: int
) -> None:
    """An hour of the month at 1.00 each: 24.00 a day, on 25 October 25.00 and on 28 March 23.00."""
    zone, whole = "Europe/Berlin", 30 * 24 + hours
    apply(tmp_path, billing={**SET_UP["billing"], "zone": zone}, commitments=[
        {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": str(whole),
         "price_per_gpu_hour": "1.0000", "valid_from": "2026-10-01"},
    ])  # fmt: skip
    found = Explorer(frozenset({"nlp"}), datetime(2027, 4, 3, tzinfo=UTC), zone).explore(asked(f"month={month}&by=kind"))
    expected = [Decimal("24.00")] * 31
    expected[changed] = Decimal(f"{hours}.00")
    assert (found.total.total, found.charted[0].bars) == (whole, expected)


@pytest.mark.usefixtures("used")
def test_a_month_that_cannot_be_summed_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = cubes.cube_make

    def failing(period: BillingPeriod, *, now: datetime) -> MonthCube:
        if period.month != "2026-10":
            raise ArithmeticError("too large")
        return make(period, now=now)

    monkeypatch.setattr(cubes, "cube_make", failing)
    assert cubes_refresh() == 1
    assert list(MonthCube.objects.values_list("month", flat=True)) == ["2026-10"]
    assert "ArithmeticError: too large" in caplog.text


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
    ("queue", {"": "34.13", "gold": "25.00"}),
    ("tier", {"": "34.13", "high": "25.00"}),
    ("pool", {"": "34.13", "spot": "25.00"}),
    ("site", {"": "59.13"}),
])  # fmt: skip
def test_dimensions_that_no_invoice_names_add_up_to_the_same_total(used: None, by: str, expected: dict[str, str]) -> None:
    found = explored(f"month=2026-10&by={by}")

    assert totals(found) == {(name,): Decimal(amount) for name, amount in expected.items()}


@pytest.mark.parametrize(("metric", "expected"), [
    ("gpu_hours", {"nlp": "2.833333", "cv": "2.000000"}),
    ("tokens", {"nlp": "2400000"}),
    ("requests", {"nlp": "1"}),
])  # fmt: skip
def test_usage_can_be_asked_for_instead_of_cost(used: None, metric: str, expected: dict[str, str]) -> None:
    assert totals(explored(f"month=2026-10&metric={metric}")) == {(name,): Decimal(n) for name, n in expected.items()}


def test_a_day_is_shared_out_over_its_hours_so_that_they_add_up_to_it(used: None) -> None:
    """cv: 2 h at 10.00 from 10:00 local. pretrain: an hour before midnight, then 1.5 h that cost 15.00; eval at 10:00."""
    found = explored("from=2026-10-10&to=2026-10-11&step=hour&by=team&by=job")

    assert {group.names: bars(group, found) for group in found.groups} == {
        ("nlp", "PyTorchJob/pretrain"): {
            "2026-10-10T23:00:00+08:00": Decimal("10.00"), "2026-10-11T00:00:00+08:00": Decimal("10.00"),
            "2026-10-11T01:00:00+08:00": Decimal("5.00"),
        },
        ("cv", "pod/uid-3"): {
            "2026-10-11T10:00:00+08:00": Decimal("10.00"), "2026-10-11T11:00:00+08:00": Decimal("10.00"),
        },
        ("nlp", "Job/eval"): {"2026-10-11T10:00:00+08:00": Decimal("3.33")},
    }  # fmt: skip
    assert (len(found.steps), found.total.total) == (48, Decimal("48.33"))


@pytest.mark.parametrize(("asking", "expected"), [
    ("metric=gpu_hours&team=nlp&from=2026-10-11&to=2026-10-11",
     {"2026-10-11T00": "1.000000", "2026-10-11T01": "0.500000", "2026-10-11T10": "0.333333"}),
    ("metric=requests&from=2026-10-15&to=2026-10-15", {"2026-10-15T12": "1"}),
    ("metric=tokens&from=2026-10-15&to=2026-10-15", {"2026-10-15T12": "2400000"}),
    ("job=Job/eval&from=2026-10-11&to=2026-10-11", {"2026-10-11T10": "3.33"}),
    ("search=vision&from=2026-10-11&to=2026-10-11", {}),
])  # fmt: skip
def test_usage_of_an_hour_is_what_was_used_in_it(used: None, asking: str, expected: dict[str, str]) -> None:
    found = explored(f"step=hour&by=none&{asking}")
    shown = bars(found.charted[0], found) if found.charted else {}
    assert {name[:13]: bar for name, bar in shown.items()} == {name: Decimal(bar) for name, bar in expected.items()}


def test_hours_are_the_same_after_the_close_whatever_is_reported_later(used: None) -> None:
    asking = "from=2026-10-09&to=2026-10-20&step=hour&by=job&by=kind"
    before = explored(asking)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_allocations(
        hold(9, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", quantity=1), now=datetime(2026, 11, 2, tzinfo=UTC)
    )
    after = explored(asking)
    shown = [{one.names: bars(one, found) for one in found.groups if one.total} for found in (before, after)]
    assert (shown[0], len(shown[0])) == (shown[1], 4)


def late(*usage: Any, now: datetime) -> None:
    """October is closed, then this is reported."""
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    ingest_allocations(*usage, now=now)


def test_what_has_no_hour_of_its_own_is_spread_over_the_hours_of_its_days(used: None) -> None:
    late(hold(9, "2026-10-20T00:00:00Z", "2026-10-20T01:00:00Z", quantity=1), now=datetime(2026, 11, 2, tzinfo=UTC))
    found = explored("from=2026-11-01&to=2026-11-03&step=hour&by=kind")  # it is noon of the third
    hours = list(bars(found.groups[0], found).values())
    assert (found.groups[0].names, sum(hours), len(hours)) == (("late",), Decimal("10.00"), 24 + 24 + 12)
    assert (hours[0], hours[-1]) == (Decimal("0.14"), Decimal("0.27"))  # 3.34 of 24 hours, 3.33 of 12


def test_late_usage_counts_once_however_many_months_are_open(used: None) -> None:
    """October was closed at 59.13 for 4.833333 h, then 3 h of it came late; November has 1 h, December half an hour."""
    now = datetime(2026, 12, 3, 4, tzinfo=UTC)
    late(
        hold(7, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z", quantity=1),
        hold(8, "2026-11-12T00:00:00Z", "2026-11-12T01:00:00Z", quantity=1),
        hold(9, "2026-12-01T00:00:00Z", "2026-12-01T00:30:00Z", quantity=1), now=now,
    )  # fmt: skip
    expected = {
        "month=2026-11": ("40.00", "4.000000"), "month=2026-12": ("35.00", "3.500000"),
        "from=2026-10-01&to=2026-12-31&step=month": ("104.13", "9.333333"),
        "from=2026-11-01&to=2026-12-31&step=day&by=kind&by=namespace": ("45.00", "4.500000"),
        "from=2026-11-20&to=2026-12-03&step=hour&kind=late": ("11.00", "1.100000"),
    }  # fmt: skip
    assert {
        asking: tuple(str(explored(f"{asking}{metric}", now=now).total.total) for metric in ("", "&metric=gpu_hours"))
        for asking in expected
    } == expected


def test_late_usage_that_a_close_has_just_billed_is_no_longer_in_the_open_month_after_it(used: None) -> None:
    """59.13 of October, 30.00 of it late, billed with the 10.00 of November; the sums of December are of the same moment."""
    now = datetime(2026, 12, 3, 4, tzinfo=UTC)
    late(
        hold(7, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z", quantity=1),
        hold(8, "2026-11-12T00:00:00Z", "2026-11-12T01:00:00Z", quantity=1), now=now,
    )  # fmt: skip
    asking = Explorer(frozenset({"nlp", "cv"}), now, ZONE), asked("from=2026-10-01&to=2026-12-31&step=month")
    assert Explorer.explore(*asking).total.total == Decimal("99.13")
    period_close(month="2026-11", actor="ops", now=now)
    assert Explorer.explore(*asking).total.total == Decimal("99.13")


def test_late_usage_that_nobody_can_be_billed_counts_once_however_many_months_are_open(used: None) -> None:
    """Three hours of October come late, of a namespace that nobody owns, and tokens of nlp's that have no price; December
    has one more hour of that namespace."""
    now = datetime(2026, 12, 3, 4, tzinfo=UTC)
    late(
        hold(7, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z", quantity=1, namespace="nobodys"),
        hold(8, "2026-12-01T00:00:00Z", "2026-12-01T01:00:00Z", quantity=1, namespace="nobodys"), now=now,
    )  # fmt: skip
    ingest_tokens(token_record(9, model="unheard-of"), now=now)
    for asking, of_gpus, amount in (
        ("month=2026-11", 3, "30.00"), ("month=2026-12", 4, "40.00"),
        ("from=2026-10-01&to=2026-12-31&step=month", 4, "40.00"),
    ):  # fmt: skip
        found = explored(asking, now=now)
        window = open_window(found)
        assert window is not None
        left = freshness(EVERYTHING, window, now, unbilled=found.unbilled).unbilled
        assert [(item.why, item.unit, item.quantity, item.amount) for item in left] == [
            ("unowned", "gpu_seconds", of_gpus * 3600, Decimal(amount)), ("unpriced", "tokens", 1100, None),
        ], asking  # fmt: skip


def test_hours_of_days_without_usage_are_nothing_whatever_other_days_of_the_month_have(used: None) -> None:
    """A first of October with usage: hours of the second are not those of the first."""
    ingest_allocations(hold(9, "2026-10-01T00:00:00Z", "2026-10-01T02:00:00Z", quantity=1))
    assert explored("from=2026-10-02&to=2026-10-02&step=hour").total.total == Decimal("0.00")
    assert explored("from=2026-10-02&to=2026-10-02&step=hour&team=cv").total.total == Decimal("0.00")
    assert explored("from=2026-10-01&to=2026-10-01&step=hour").total.total == Decimal("20.00")


def test_hours_of_more_than_a_month_are_refused(used: None) -> None:
    with pytest.raises(TooFineError):
        asked("from=2026-10-01&to=2026-11-01&step=hour")
    assert len(explored("from=2026-10-02&to=2026-11-01&step=hour").steps) == 31 * 24


def test_hours_of_more_parts_than_somebody_waits_for_are_refused(used: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "MOST_PARTS", 2)
    assert explored("month=2026-10&step=hour&team=cv").total.total == Decimal("20.00")
    with pytest.raises(TooFineError):
        explored("month=2026-10&step=hour")


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


@pytest.mark.parametrize("more", ["", "&sort=name", "&column=before&column=change"])
def test_a_group_with_nothing_of_the_metric_is_listed_where_another_column_counts_it(used: None, more: str) -> None:
    """No token is of GPU time: the rows of a column add up to its total."""
    found = explored(f"month=2026-10&metric=tokens&by=model&column=gpu_hours{more}")
    assert {group.names: (group.total, group.sums["gpu_hours"]) for group in found.groups} == {
        ("llama-3-8b",): (Decimal(2_400_000), Decimal("0.000000")), ("",): (Decimal(0), Decimal("4.833333")),
    }  # fmt: skip
    assert (found.total.sums["gpu_hours"], found.number) == (Decimal("4.833333"), 2)
    assert [group.names for group in explored("month=2026-10&metric=tokens&by=model").groups] == [("llama-3-8b",)]


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
    late(hold(9, "2026-10-20T00:00:00Z", "2026-10-20T01:00:00Z", quantity=1), now=datetime(2026, 11, 2, tzinfo=UTC))

    found = explored("from=2026-10-01&to=2026-11-30&step=month&by=kind")

    assert {group.names[0]: bars(group, found) for group in found.groups} == {
        "gpu": {"2026-10": Decimal("48.33")}, "tokens": {"2026-10": Decimal("10.80")},
        "late": {"2026-11": Decimal("10.00")},  # evenly over the three days of November so far
    }  # fmt: skip
    assert bars(explored("month=2026-11&by=kind").groups[0], explored("month=2026-11&by=kind")) == {
        "2026-11-01": Decimal("3.34"), "2026-11-02": Decimal("3.33"), "2026-11-03": Decimal("3.33"),
    }  # fmt: skip
    assert found.open_months == ["2026-11"]


def test_credit_notes_and_rebills_are_a_kind_of_charge_on_the_day_of_their_issue(credited: None) -> None:
    found = explored("from=2026-10-01&to=2026-11-30&step=day&by=team&by=kind", now=IN_DECEMBER)

    assert {group.names: bars(group, found) for group in found.groups if group.names[1] == "note"} == {
        ("nlp", "note"): {"2026-11-12": Decimal("-8.33")}, ("cv", "note"): {"2026-11-12": Decimal("-1.00")},
    }  # fmt: skip
    assert explored("month=2026-10", now=IN_DECEMBER).total.total == Decimal("59.13")  # issued invoices never change
    november = explored("month=2026-11", now=IN_DECEMBER)
    noted = Note.objects.filter(correction__period__month="2026-11").aggregate(sum=Sum("total"))["sum"]
    assert november.total.total == noted == Decimal("-9.33")


def test_notes_have_the_names_of_the_lines_that_they_correct_but_no_job(credited: None) -> None:
    expected = {
        "team": {"nlp": "-8.33", "cv": "-1.00"}, "namespace": {"nlp-train": "-8.33", "cv": "-1.00"},
        "cluster": {"hq-1": "-9.33"}, "accelerator": {"NVIDIA-H800": "-9.33"}, "model": {"": "-9.33"},
        "job": {"": "-9.33"}, "queue": {"": "-9.33"},
    }  # fmt: skip
    for by, amounts in expected.items():
        found = totals(explored(f"month=2026-11&kind=note&by={by}", now=IN_DECEMBER))
        assert found == {(name,): Decimal(amount) for name, amount in amounts.items()}, by


def test_notes_change_no_usage_and_no_unit_cost(credited: None) -> None:
    asking = "month=2026-11&column=gpu_hours&column=per_gpu_hour"
    found = explored(f"{asking}&metric=gpu_hours", now=IN_DECEMBER)
    assert found.total.total == Decimal("0.000000")
    assert explored(asking, now=IN_DECEMBER).total.cell("per_gpu_hour") is None


def test_a_month_is_summed_again_once_a_note_is_issued_in_it(credited: None) -> None:
    explorer = Explorer(frozenset({"nlp", "cv"}), IN_DECEMBER, ZONE)
    assert explorer.explore(asked("month=2026-11")).total.total == Decimal("-9.33")
    credit(part("1.00"), number=str(Invoice.objects.get(team__code="nlp").number), code="goodwill")
    assert explorer.explore(asked("month=2026-11")).total.total == Decimal("-10.33")


def test_a_note_that_is_not_issued_is_in_no_figure(used: None) -> None:
    people()
    bill()
    draft(part("8.33"), number=str(Invoice.objects.get(team__code="nlp").number))
    assert explored("month=2026-11", now=IN_DECEMBER).total.total == Decimal("0.00")


def test_deleted_sums_are_made_again_to_the_same_bytes(used: None) -> None:
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert cubes_refresh() >= 1
    first = {column.name: bytes(column.content) for column in MonthCube.objects.get(month="2026-10").columns.all()}
    MonthCube.objects.all().delete()
    assert cubes_refresh() >= 1
    assert {column.name: bytes(column.content) for column in MonthCube.objects.get(month="2026-10").columns.all()} == first
    assert "amount" in first


def test_a_month_is_summed_again_where_another_close_or_a_void_document_changed_its_lines(used: None) -> None:
    now = datetime(2026, 11, 3, 4, tzinfo=UTC)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert cubes_ready(["2026-10"], now=now)[0][0].rows > 0
    Invoice.objects.filter(team__code="cv").update(status="void", void_reason="test")
    found = Explorer(frozenset({"nlp", "cv"}), now, ZONE).explore(asked("month=2026-10"))
    assert totals(found) == {("nlp",): Decimal("39.13")}


def test_a_month_that_a_clock_ahead_of_time_summed_is_summed_again(used: None) -> None:
    cubes_ready(["2026-10"], now=NOW + timedelta(days=1))
    ingest_allocations(hold(4, "2026-10-12T02:00:00Z", "2026-10-12T04:00:00Z", quantity=1, namespace="cv"))
    found = Explorer(frozenset({"nlp", "cv"}), NOW, ZONE).explore(asked("month=2026-10"))
    assert found.total.total == Decimal("79.13")


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


def test_a_large_open_month_as_another_release_summed_it_is_named_as_missing(used: None, settings: Any) -> None:
    explorer = Explorer(frozenset({"nlp", "cv"}), NOW, ZONE)
    assert explorer.explore(asked("month=2026-10")).missing == []
    MonthCube.objects.update(source="1.0 open -")
    CubeColumn.objects.update(content=b"of another form")
    settings.CACHE_STATEMENTS_ABOVE_LINES = 1
    RatingSnapshot.objects.update_or_create(month="2026-10", defaults={"close_seq": None, "size": 5})

    found = explorer.explore(asked("month=2026-10"))
    assert (found.missing, found.months) == (["2026-10"], {})
