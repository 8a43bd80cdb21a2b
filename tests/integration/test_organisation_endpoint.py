"""`teams/CODE/organisation` reads and writes the dated facts of a team as the set-up file and the form do."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from billing.invoices.selectors import period_of
from billing.tenancy.models import AuditEntry, Team
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in
from tests.factories.api import problem, program
from tests.factories.corrections import bill, people
from tests.factories.cost_centers import used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
ALWAYS, THE_11TH = None, "2026-10-10T16:00:00+00:00"
CENTERS = [{"value": "CC-210", "valid_from": ALWAYS}, {"value": "CC-211", "valid_from": THE_11TH}]


def patch(client: Client, body: Any, status: int = 200, code: str = "nlp") -> Any:
    answer = client.patch(f"/api/v1/teams/{code}/organisation", json.dumps(body), content_type="application/json")
    assert answer.status_code == status, answer.content
    return answer.json()


def get(client: Client) -> Any:
    return client.get("/api/v1/teams/nlp/organisation").json()


@pytest.fixture
def writer(tmp_path: Path) -> Client:
    first, *others = SET_UP["teams"]
    apply(tmp_path, teams=[{**first, "cost_center": "CC-210", "department": "R&D", "parent": "research"}, *others])
    return program("teams:write", "invoices:read")


def test_facts_are_read_and_written_with_their_dates(writer: Client) -> None:
    plain = [{"value": "CC-210", "valid_from": None}]
    assert get(writer) == {
        "team": "nlp", "cost_center": plain, "department": [{"value": "R&D", "valid_from": None}],
        "legal_entity": [{"value": "", "valid_from": None}], "parent": [{"value": "research", "valid_from": None}],
    }  # fmt: skip
    answer = patch(writer, {"cost_center": CENTERS})
    assert answer["cost_center"] == CENTERS
    assert [text for text in answer["changes"] if text.startswith("team nlp")]
    assert get(writer)["cost_center"] == CENTERS
    assert get(writer)["department"] == [{"value": "R&D", "valid_from": None}]
    entry = AuditEntry.objects.filter(action="team_put", subject="nlp").latest("id")
    assert (entry.detail["dated_cost_centers"], entry.detail["acting"]["channel"]) == (CENTERS, "token")
    assert patch(writer, {"cost_center": plain})["cost_center"] == plain
    assert Team.objects.get(code="nlp").dated_cost_centers == []


def test_a_day_is_local_midnight(writer: Client) -> None:
    listed = [{"value": "research"}, {"value": "products", "valid_from": "2026-10-11"}]
    found = patch(writer, {"parent": listed})["parent"]
    assert found == [{"value": "research", "valid_from": None}, {"value": "products", "valid_from": THE_11TH}]


def test_a_preview_names_what_would_change_and_stores_nothing(writer: Client) -> None:
    october = period_of("2026-10")
    october.save()
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    answer = patch(writer, {"department": [{"value": "Products"}], "preview": True})
    assert [text for text in answer["changes"] if text.startswith("team nlp")]
    (moved,) = answer["moved"]
    assert moved == {"month": "2026-10", "fact": "department", "from": "R&D", "to": "Products", "amount": "480.00"}
    assert answer["department"] == [{"value": "R&D", "valid_from": None}]
    assert Team.objects.get(code="nlp").department == "R&D"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "name at least one of cost_center, department, legal_entity, parent"),
        ({"cost_centre": CENTERS}, 400, "there is no such field"),
        ({"cost_center": []}, 400, "cost_center"),
        ({"cost_center": [{"value": "A", "valid_from": "soon"}]}, 400, "'soon' must be a date"),
        ({"parent": [{"value": "nlp"}]}, 409, "'nlp' would be above itself"),
        ({"legal_entity": [{"value": "X", "valid_from": "2026-10-11"}]}, 409, "must be the start of a month"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_field(writer: Client, body: Any, status: int, text: str) -> None:
    assert text in json.dumps(patch(writer, body, status), ensure_ascii=False)


def test_a_date_in_a_closed_month_is_refused_as_in_the_form(writer: Client) -> None:
    people()
    patch(writer, {"cost_center": CENTERS})
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    bill()
    answer = patch(writer, {"cost_center": [{"value": "CC-9"}]}, 409)
    assert "cost_center: changes 2026-10, which is closed and was charged to CC-210, CC-211" in answer["detail"]


def test_only_who_operates_writes_and_nobody_sees_another_team(writer: Client) -> None:
    problem(patch_answer(program("invoices:read")), 403)
    person("fin", "finance")
    problem(patch_answer(signed_in("fin")), 403)
    person("adam", "admin")
    assert patch_answer(signed_in("adam")).status_code == 200
    problem(program("invoices:read", team="cv").get("/api/v1/teams/nlp/organisation"), 404)
    problem(writer.get("/api/v1/teams/none/organisation"), 404)


def patch_answer(client: Client) -> Any:
    body = json.dumps({"department": [{"value": "Products"}]})
    return client.patch("/api/v1/teams/nlp/organisation", body, content_type="application/json")
