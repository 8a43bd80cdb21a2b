"""A running month in which a team is only shown its costs: forecast, budget and comparison are of those that are charged."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict

from billing.budgets.services import days_store
from billing.closing.services.showback import billing_mode_put
from billing.explorer.selectors import Explorer
from billing.portal.board import Board
from billing.portal.explorer_outlook import Budgeted, Outlook
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.statements import month_facets
from billing.tenancy.models import BillingSetup, Team
from tests.factories import apply, ingest_allocations, person, watched
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 10, 16, tzinfo=UTC)


@pytest.fixture(autouse=True)
def november(tmp_path: Path) -> None:
    """nlp and cv spend 10.00 on each of the first ten days, as on one of October; cv is only shown it, since October."""
    person("app", "approver")
    apply(tmp_path, budgets=[{"team": "nlp", "amount": "400.00"}, {"team": "cv", "amount": "100.00"}])
    days = ["2026-10-05", *(f"2026-11-{day:02d}" for day in range(1, 11))]
    ingest_allocations(
        *(hold(100 * team + number, f"{day}T00:00:00Z", f"{day}T01:00:00Z", quantity=1, namespace=namespace)
          for team, namespace in enumerate(("nlp-a", "cv"), start=1) for number, day in enumerate(days)),
        now=NOW,
    )  # fmt: skip
    billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="first quarter", actor="app", now=NOW)
    watched(NOW)
    days_store(now=NOW)


@pytest.mark.parametrize("asked", ["", "&team=nlp"])
def test_the_explorer_foretells_what_is_charged(asked: str) -> None:
    """100.00 in ten of thirty days."""
    reader = Explorer(frozenset({"nlp", "cv"}), NOW, "Asia/Shanghai")
    outlook = Outlook.of(reader.answer(QueryDict(f"range=this-month{asked}")), reader)
    assert outlook is not None
    ahead = outlook.forecast(reader, silent=False)
    assert (ahead.spent, ahead.expected and ahead.expected.p50) == (Decimal("100.00"), Decimal("300.00"))
    assert (ahead.budget, ahead.used) == (Budgeted(Decimal("400.00"), 1, 1), Decimal("0.25"))


def board(*codes: str) -> Board:
    setup, teams = BillingSetup.objects.get(), Team.objects.filter(code__in=codes)
    period = period_shown("2026-11", setup)
    return Board(period, setup, teams, Filters(), month_facets(period, teams), NOW)


@pytest.mark.parametrize(("teams", "shadow"), [(("nlp", "cv"), False), (("nlp",), False), (("cv",), True)])
def test_a_board_foretells_and_compares_those_whose_total_it_shows(teams: tuple[str, ...], shadow: bool) -> None:
    shown = board(*teams)
    expected, bridge = shown.expected(), shown.bridge()
    assert (shown.shadow, shown.total, expected and expected.p50) == (shadow, Decimal("100.00"), Decimal("300.00"))
    assert bridge is not None
    assert (bridge.before, bridge.after) == (Decimal("10.00"), Decimal("100.00"))
