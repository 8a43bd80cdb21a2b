"""Before it is saved, the form says what amount moves from which cost centre, department, company and group to which.

nlp holds 8 H800 at 10.0000 on 10 October 2026 from 14:00 to 20:00 UTC: 480.00, of which 320.00
are of 11 October in Shanghai.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.invoices.selectors import period_of
from billing.setup.owners import owners_preview, sections_text
from billing.tenancy.models import Team
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in
from tests.factories.cost_centers import used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
DURING = datetime(2026, 10, 20, 4, tzinfo=UTC)
OF_THE_11TH = {"valid_from": "2026-10-10T16:00:00+00:00"}


@pytest.fixture(autouse=True)
def used_on_two_days(tmp_path: Path) -> None:
    first, *others = SET_UP["teams"]
    apply(tmp_path, teams=[{**first, "cost_center": "CC-210", "parent": "research", "department": "R&D"}, *others])
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))


def moved(**facts: Any) -> list[tuple[str, str, str, str, str, Decimal]]:
    stays = {"code": "nlp", "name": "NLP", "cost_center": "CC-210", "parent": "research", "department": "R&D"}
    text = sections_text({"teams": [{**stays, **facts}]})
    shown = owners_preview(text=text, name="form", actor="ada", periods=[period_of("2026-10")])
    assert Team.objects.get(code="nlp").dated_cost_centers == []
    return [(one.month, one.team, one.fact, one.before, one.after, one.amount) for one in shown.facts]


def test_a_date_within_the_month_moves_what_was_used_from_then_on() -> None:
    centers = [{"value": "CC-210"}, {"value": "CC-211", **OF_THE_11TH}]
    assert moved(cost_center=centers) == [("2026-10", "nlp", "cost_center", "CC-210", "CC-211", Decimal("320.00"))]


def test_a_text_moves_all_of_the_month_and_every_fact_is_named() -> None:
    assert moved(department="Products", parent=[{"value": "research"}, {"value": "products", **OF_THE_11TH}]) == [
        ("2026-10", "nlp", "department", "R&D", "Products", Decimal("480.00")),
        ("2026-10", "nlp", "parent", "research", "products", Decimal("320.00")),
    ]


def test_what_changes_nothing_of_the_month_moves_nothing() -> None:
    later = [{"value": "CC-210"}, {"value": "CC-211", "valid_from": "2026-11-01"}]
    assert moved(cost_center=later) == []
    assert moved() == []


def test_the_page_shows_it_before_anything_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: DURING)
    adam: Client = signed_in(person("adam", "admin"))
    form = {"code": "nlp", "name": "NLP", "cost_center": "CC-211", "department": "R&D", "parent": "research"}
    page = adam.post("/ownership/look/team/", {**form, "changes_from": "2026-10-11"})
    text = " ".join(page.content.decode().split())
    assert "What moves between cost centres and groups in open months" in text
    assert '<td class="name" data-name="From">CC-210</td> <td class="name" data-name="To">CC-211</td>' in text
    assert '<td class="n" data-name="Amount">320.00</td>' in text
    assert Team.objects.get(code="nlp").dated_cost_centers == []
