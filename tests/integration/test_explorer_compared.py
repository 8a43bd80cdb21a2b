"""The explorer compares with the days before: as many, of what was known of them, and of what was charged alike."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict

from billing.closing.services.showback import billing_mode_put
from billing.explorer.models import MonthCube
from billing.explorer.query import query_of
from billing.explorer.selectors import Explorer
from billing.portal.explorer_why import Why
from billing.tenancy.models import NamespaceOwnership
from tests.factories import apply, ingest_allocations
from tests.factories.corrections import people
from tests.factories.explorer import IN_DECEMBER, NOW, ZONE, asked, credited, explored, used
from tests.factories.usage import hold

__all__ = ["credited", "used"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("day", "amounts"), [
    (28, ("270.00", "270.00")), (31, ("280.00", "280.00")), (32, ("310.00", "280.00")),
])  # fmt: skip
def test_a_month_that_is_longer_than_the_one_before_is_compared_with_as_many_days_until_it_is_over(
    tmp_path: Path, day: int, amounts: tuple[str, str]
) -> None:
    """An hour at 10.00 on each day of February and March 2027."""
    apply(tmp_path)
    now = datetime(2027, 3, 1, 4, tzinfo=UTC) + timedelta(days=day - 1)
    days = [date(2027, 2, 1) + timedelta(days=number) for number in range(27 + day)]
    ingest_allocations(
        *(hold(number, f"{one}T01:00:00Z", f"{one}T02:00:00Z", quantity=1) for number, one in enumerate(days)), now=now
    )
    found = Explorer(frozenset({"nlp"}), now, ZONE).explore(query_of(QueryDict("month=2027-03"), now.date(), 1))
    assert (found.total.comparable, found.total.before) == tuple(map(Decimal, amounts))
    assert found.total.change == Decimal(amounts[0]) - Decimal(amounts[1])


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


@pytest.mark.parametrize(("asking", "teams", "begun", "before"), [
    ("month=2026-10", ["nlp", "cv"], "2026-10-01", None), ("month=2026-10", ["nlp"], "2026-10-01", None),
    ("range=last-90-days", ["nlp"], "2026-10-01", None), ("month=2026-11", ["nlp", "cv"], None, "39.13"),
    ("month=2026-11", ["cv"], "2026-11-02", None), ("month=2026-11&team=cv", ["nlp", "cv"], "2026-11-02", None),
    ("month=2026-11&column=gpu_hours", ["cv"], None, None),
])  # fmt: skip
def test_days_before_there_was_anything_to_know_are_not_nothing(
    used: None, asking: str, teams: list[str], begun: str | None, before: str | None
) -> None:
    """The first usage of all is of October, when nlp owes 39.13; cv owns something from 2 November on."""
    NamespaceOwnership.objects.filter(team__code="cv").update(valid_from=datetime(2026, 11, 1, 16, tzinfo=UTC))
    found = explored(asking, *teams, now=IN_DECEMBER)
    assert (found.begun and str(found.begun), found.total.before and str(found.total.before)) == (begun, before)
    assert (found.compared is None) == (before is None)


def test_a_team_that_is_new_had_not_nothing_before(used: None) -> None:
    """cv owns something from 2 November on; nlp, which had 39.13 in October, is compared, and so is the sum."""
    NamespaceOwnership.objects.filter(team__code="cv").update(valid_from=datetime(2026, 11, 1, 16, tzinfo=UTC))
    ingest_allocations(
        hold(7, "2026-11-03T00:00:00Z", "2026-11-03T01:00:00Z", quantity=1, namespace="cv"), now=IN_DECEMBER
    )
    found = explored("month=2026-11&by=team&sort=-before", "nlp", "cv", now=IN_DECEMBER)
    assert [(group.names, group.before, group.change) for group in found.groups] == [
        (("nlp",), Decimal("39.13"), Decimal("-39.13")), (("cv",), None, None),
    ]  # fmt: skip
    why = Why.of(found, Explorer(frozenset({"nlp", "cv"}), IN_DECEMBER, ZONE), "team")
    assert why is not None
    assert [(row.known_before, row.after) for row in why.rows] == [
        (Decimal("39.13"), Decimal("0.00")), (None, Decimal("10.00")),
    ]  # fmt: skip
    assert (found.groups[1].total, found.total.before) == (Decimal("10.00"), Decimal("39.13"))


def test_what_was_there_before_and_is_no_more_is_listed(used: None) -> None:
    found = explored("month=2026-11&by=team", now=datetime(2026, 11, 20, 4, tzinfo=UTC))

    assert {group.names[0]: (group.total, group.before) for group in found.groups} == {
        "nlp": (Decimal("0.00"), Decimal("39.13")), "cv": (Decimal("0.00"), Decimal("20.00")),
    }  # fmt: skip


def test_a_note_hides_nothing_from_a_team_that_is_only_shown_its_costs(credited: None) -> None:
    """From November on nlp is only shown what it uses: 3 h at 10.00. Of cv 1 h is charged; the notes are -8.33 and -1.00."""
    now = datetime(2026, 11, 13, tzinfo=UTC)
    billing_mode_put(team="nlp", from_month="2026-11", mode="shadow", reason="pilot", actor="fin", now=now)
    ingest_allocations(
        hold(7, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1),
        hold(8, "2026-11-02T00:00:00Z", "2026-11-02T01:00:00Z", quantity=1, namespace="cv"), now=now,
    )  # fmt: skip
    for asking, teams, *expected in (
        ("month=2026-11", ["nlp"], True, "30.00", "-8.33"), ("month=2026-11&kind=note", ["nlp"], False, "-8.33", "0.00"),
        ("month=2026-11&team=nlp&by=namespace&search=train", ["nlp", "cv"], True, "30.00", "-8.33"),
        ("from=2026-11-12&to=2026-11-12&step=hour", ["nlp"], False, "-8.33", "0.00"),
        ("month=2026-11", ["nlp", "cv"], False, "0.67", "30.00"),
        ("month=2026-11&metric=gpu_hours", ["nlp", "cv"], False, "1.000000", "3.000000"),
    ):  # fmt: skip
        found = explored(asking, *teams, now=IN_DECEMBER)
        assert [found.shadow, str(found.total.total), str(found.apart)] == expected, (asking, teams)


@pytest.mark.parametrize("mode", ["shadow", "chargeback"])
def test_what_is_charged_is_not_compared_with_what_was_only_shown(used: None, mode: str) -> None:
    """The mode of nlp changes with November; of cv, which is charged in both, the days before are known."""
    now = datetime(2026, 11, 20, 4, tzinfo=UTC)
    people()
    months = ("2026-10", "2026-11") if mode == "chargeback" else ("2026-11",)
    for month, what in zip(months, ("shadow", "chargeback"), strict=False):
        billing_mode_put(team="nlp", from_month=month, mode=what, reason="pilot", actor="fin", now=now)
    ingest_allocations(hold(7, "2026-11-02T00:00:00Z", "2026-11-02T03:00:00Z", quantity=1), now=now)
    found = explored("month=2026-11", "nlp", now=now)
    assert (str(found.total.total), found.total.before, found.compared) == ("30.00", None, None)
    assert explored("month=2026-11", "cv", now=now).total.before == Decimal("20.00")


def test_a_team_is_only_shown_its_costs_from_the_moment_it_is_switched(used: None) -> None:
    """Sums that were made a moment before are not of that mode: nlp is shown 39.13, cv still charged 20.00."""
    people()
    reader, query = Explorer(frozenset({"nlp", "cv"}), NOW, ZONE), asked("month=2026-10&column=none")
    assert str(reader.explore(query).total.total) == "59.13"
    billing_mode_put(team="nlp", from_month="2026-10", mode="shadow", reason="pilot", actor="fin", now=NOW)
    found = reader.explore(query)
    assert (str(found.total.total), str(found.apart)) == ("20.00", "39.13")
