"""What came late: one click from the overview, by the amounts of the lines, of one's own teams."""

import csv
from pathlib import Path

import pytest
from django.test import Client

from billing.closing.services.closing import period_close
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations, money, person
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER

pytestmark = pytest.mark.django_db


def hour(number: int, day: str, **changed: object) -> dict[str, object]:
    """One device for one hour at 06:00 UTC: 10.00."""
    end = f"{day}T07:00:00Z"
    return allocation_record(
        number, quantity=1, started_at=f"{day}T06:00:00Z", ended_at=end, observed_until=end, **changed
    )


@pytest.fixture(scope="module")
def november(for_all_tests: Path) -> None:
    """October is closed; then come an hour of November, and of October one of nlp and three devices of cv."""
    apply(for_all_tests)
    ingest_allocations(hour(1, "2026-10-10"))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    late = hour(3, "2026-10-12", namespace="cv") | {"quantity": 3}
    ingest_allocations(hour(2, "2026-11-10"), hour(4, "2026-10-11"), late, now=NOVEMBER_OVER)


def signed_in(role: str, team: str | None = None) -> Client:
    return factories.signed_in(person(f"{role}-{team}", role, team=team))


def rows(client: Client, month: str = "2026-11") -> list[list[str]]:
    """Month of use, team and amount of the file of the page."""
    text = client.get(f"/late/?month={month}&table=lines&as=csv").content.decode("utf-8-sig")
    return [[row["used_in"], row["team"], row["amount"]] for row in csv.DictReader(text.splitlines())]


@pytest.mark.usefixtures("november")
@pytest.mark.parametrize("closed", [False, True])
def test_the_overview_says_how_much_came_late_and_leads_to_the_lines(closed: bool) -> None:
    if closed:
        period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    client = signed_in("finance")
    overview = client.get("/?month=2026-11").content.decode()
    assert '<a href="/late/?month=2026-11">40.00</a>' in overview
    assert rows(client) == [["2026-10", "cv", "30.00"], ["2026-10", "nlp", "10.00"]]
    page = client.get("/late/?month=2026-11").content.decode()
    assert "40.00" in page
    assert page.count('href="/teams/cv/lines/') == 1


@pytest.mark.usefixtures("november")
def test_a_lead_sees_what_came_late_of_the_own_team() -> None:
    lead = signed_in("lead", "nlp")
    assert '<a href="/late/?month=2026-11">10.00</a>' in lead.get("/?month=2026-11").content.decode()
    assert rows(lead) == [["2026-10", "nlp", "10.00"]]


@pytest.mark.usefixtures("november")
def test_a_month_into_which_nothing_came_late_says_so() -> None:
    client = signed_in("finance")
    assert "/late/" not in client.get("/?month=2026-10").content.decode()
    assert "Nothing came late into 2026-10" in client.get("/late/?month=2026-10").content.decode()


@pytest.mark.usefixtures("november")
def test_agents_and_ownership_lead_on_to_what_came_late_and_what_has_no_owner() -> None:
    admin = signed_in("admin")
    assert 'href="/late/?month=2026-11"' in admin.get("/sources/?month=2026-11").content.decode()
    assert 'href="/close/#exceptions-title"' in admin.get("/ownership/").content.decode()
    assert "/close/" not in signed_in("lead", "nlp").get("/ownership/").content.decode()


@pytest.mark.usefixtures("november")
@pytest.mark.parametrize("closed", [False, True])
def test_the_recovery_says_what_it_leaves_out_of_the_billed_total(closed: bool) -> None:
    """Its 10.00 and the 40.00 that came late are the 50.00 of the overview."""
    if closed:
        period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    page = signed_in("finance").get("/recovery/?month=2026-11")
    found = page.context["recovery"]
    assert (found.billed, found.late) == (money("10.00"), money("40.00"))
    assert '<a href="/late/?month=2026-11">40.00</a>' in page.content.decode()
