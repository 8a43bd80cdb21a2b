"""Department, parent and legal entity of a team have dates, as its cost centre has.

nlp is of Example Cloud Ltd until the end of October 2026 and of Example Models Ltd from 1 November on, 00:00 in Shanghai. It
holds 8 H800 for one hour of October and one of November at 10.0000: 80.00 each.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from billing.closing.report import build_report
from billing.corrections.services.corrections import LineCredit, rebill_plan
from billing.corrections.services.proof import period_verify
from billing.invoices.documents.content import cost_centers_text, read_document
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of, period_of
from billing.setup.file import SetUpFileError
from billing.setup.owners import teams_declared
from billing.tenancy.models import Team
from billing.tenancy.services import cost_centers_refresh
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import NOVEMBER_OVER, bill, credit, people
from tests.factories.cost_centers import MOVES, used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
CLOUD, MODELS = "Example Cloud Ltd", "Example Models Ltd"
ENTITIES = [{"value": CLOUD}, {"value": MODELS, "valid_from": "2026-11-01"}]
PARENTS = [{"value": "research", "valid_from": "2026-01-01"}, {"value": "products", "valid_from": "2026-10-11"}]
DEPARTMENTS = [{"value": "R&D", "valid_from": "2026-01-01"}, {"value": "Products", "valid_from": "2026-10-11"}]
DATED = {"legal_entity": ENTITIES, "parent": PARENTS, "department": DEPARTMENTS}


def teams(**facts: Any) -> list[dict[str, Any]]:
    first, *others = SET_UP["teams"]
    return [{**first, **facts}, *others]


def of_now() -> tuple[str, str, str]:
    nlp = Team.objects.select_related("parent").get(code="nlp")
    return nlp.department, nlp.legal_entity, nlp.parent.code if nlp.parent else ""


def october_and_november() -> None:
    ingest_allocations(
        used(1, "2026-10-09T10:00:00Z", "2026-10-09T11:00:00Z"), used(2, "2026-11-09T10:00:00Z", "2026-11-09T11:00:00Z")
    )


def test_a_set_up_file_dates_them_and_pages_show_those_of_now(tmp_path: Path) -> None:
    (change,) = [text for text in apply(tmp_path, teams=teams(**DATED)).changes if text.startswith("team nlp")]
    assert "legal entity Example Cloud Ltd, Example Models Ltd from 2026-10-31T16:00:00+00:00" in change
    assert "parent research from 2025-12-31T16:00:00+00:00, products from 2026-10-10T16:00:00+00:00" in change
    assert list(Team.objects.filter(is_group=True).order_by("code").values_list("code", flat=True))[:2] == [
        "products", "research",
    ]  # fmt: skip
    cost_centers_refresh(now=datetime(2026, 10, 10, 15, 59, tzinfo=UTC))
    assert of_now() == ("R&D", CLOUD, "research")
    moved = datetime(2026, 11, 30, tzinfo=UTC)
    assert [cost_centers_refresh(now=moved), cost_centers_refresh(now=moved)] == [3, 0]
    assert of_now() == ("Products", MODELS, "products")
    (declared,) = teams_declared(Team.objects.filter(code="nlp"))
    assert {fact: [item["value"] for item in declared[fact]] for fact in DATED} == {
        "legal_entity": [CLOUD, MODELS], "parent": ["research", "products"], "department": ["R&D", "Products"],
    }  # fmt: skip
    facts = {name: declared[name] for name in DATED}
    cost_centers_refresh(now=datetime.now(UTC))
    assert apply(tmp_path, teams=teams(**facts)).changes == []


def test_a_plain_text_stays_as_it_was(tmp_path: Path) -> None:
    apply(tmp_path, teams=teams(legal_entity=CLOUD, parent="research", department="R&D"))
    assert of_now() == ("R&D", CLOUD, "research")
    assert Team.objects.get(code="nlp").dated_organisation == {}


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"legal_entity": [{"value": MODELS, "valid_from": "2026-11-11"}]},
         r"legal_entity\[0\]\.valid_from: 2026-11-11T00:00:00\+08:00 must be the start of a month"),
        ({"legal_entity": [{"value": MODELS, "valid_from": "2026-11-01T00:00:00Z"}]}, "must be the start of a month"),
        ({"department": []}, "department: must name at least one `value`"),
        ({"department": [{"valid_from": "2026-11-01"}]}, r"department\[0\]\.value: is missing"),
        ({"department": [{"value": "A"}, {"value": "B"}]}, "always is stated twice"),
        ({"parent": [{"value": "research"}, {"value": "nlp", "valid_from": "2026-11-01"}]}, "'nlp' would be above itself"),
    ],
)  # fmt: skip
def test_dates_that_cannot_be_are_refused_with_their_field(facts: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError, match=text):
        apply(tmp_path, teams=teams(**facts))


def test_a_loop_that_only_a_later_date_closes_is_refused(tmp_path: Path) -> None:
    groups = [{"code": "a", "group": "true"}, {"code": "b", "group": "true", "parent": "a"}]
    apply(tmp_path, teams=[*teams(), *groups])
    groups[0]["parent"] = [{"value": "b", "valid_from": "2026-12-01"}]  # type: ignore[assignment]  # a list is another form
    with pytest.raises(SetUpFileError, match="'a' would be above itself"):
        apply(tmp_path, teams=[*teams(), *groups])


def test_documents_and_notes_are_of_the_legal_entity_of_their_month(tmp_path: Path) -> None:
    people()
    apply(tmp_path, teams=teams(**DATED))
    october_and_november()
    bill()
    bill("2026-11", NOVEMBER_OVER)
    named = {invoice.period.month: document_of(invoice)["recipient"]["legal_entity"] for invoice in Invoice.objects.all()}
    assert named == {"2026-10": CLOUD, "2026-11": MODELS}
    (note,) = credit(LineCredit(1, amount=Decimal("8.00")))
    assert document_of(note)["recipient"]["legal_entity"] == CLOUD
    assert all(proof.holds for month in named for proof in period_verify(month=month))


def test_a_rebill_of_no_month_that_is_known_is_of_the_team_of_now(tmp_path: Path) -> None:
    centers = [{"value": "CC-1", "valid_from": "2026-01-01"}, {"value": "CC-2", "valid_from": "2026-10-11"}]
    apply(tmp_path, teams=teams(**DATED, cost_center=centers))
    team = Team.objects.get(code="nlp")
    plan = rebill_plan(team, None, [])
    assert (plan.cost_center, plan.legal_entity, plan.cost_centers) == (team.cost_center, team.legal_entity, [])


def test_a_team_that_becomes_another_company_blocks_the_months_from_then_on(tmp_path: Path) -> None:
    apply(tmp_path, billing={**SET_UP["billing"], "legal_entity": CLOUD}, teams=teams(**DATED))
    october_and_november()
    found = {}
    for month, over in (("2026-10", datetime(2026, 11, 1, tzinfo=UTC)), ("2026-11", NOVEMBER_OVER)):
        report = build_report(period_of(month), now=over, thorough=False)
        found[month] = [item.action for item in report.exceptions if item.kind == "other_legal_entity"]
    assert found["2026-10"] == []
    assert found["2026-11"] == [f"belongs to {MODELS}: show it what it used (mode shadow) and have the ERP invoice it"]


@pytest.mark.parametrize(
    ("fact", "listed", "was"),
    [
        ("legal_entity", [{"value": MODELS}], CLOUD),
        ("parent", [{"value": "research", "valid_from": "2026-01-01"}], "research, products"),
        ("parent", "products", "research, products"),
        ("department", [*DEPARTMENTS, {"value": "X", "valid_from": "2026-10-20"}], "R&D, Products"),
    ],
)  # fmt: skip
def test_a_change_that_reaches_into_a_closed_month_names_it(fact: str, listed: Any, was: str, tmp_path: Path) -> None:
    people()
    apply(tmp_path, teams=teams(**DATED))
    october_and_november()
    bill()
    with pytest.raises(SetUpFileError, match=f"{fact}: changes 2026-10, which is closed and was of {was}"):
        apply(tmp_path, teams=teams(**{**DATED, fact: listed}))
    later = [*DATED[fact], {"value": "later", "valid_from": "2026-12-01"}]
    assert apply(tmp_path, teams=teams(**{**DATED, fact: later})).changes


def test_a_text_becomes_dated_where_it_agrees_with_what_was_invoiced(tmp_path: Path) -> None:
    people()
    apply(tmp_path, teams=teams(legal_entity=CLOUD))
    october_and_november()
    bill()
    with pytest.raises(SetUpFileError, match=f"legal_entity: changes 2026-10, which is closed and was of {CLOUD}"):
        apply(tmp_path, teams=teams(legal_entity=[{"value": MODELS}]))
    assert apply(tmp_path, teams=teams(legal_entity=ENTITIES)).changes


@pytest.fixture
def adam(tmp_path: Path) -> Client:
    apply(tmp_path, teams=teams(cost_center="CC-210", parent="research", department="R&D"))
    return signed_in(person("adam", "admin"))


def look(client: Client, **facts: str) -> dict[str, Any]:
    form = {"code": "nlp", "name": "NLP", "cost_center": "CC-210", "department": "R&D", **facts}
    answer = client.post("/ownership/look/team/", {"parent": "research", **form})
    (written,) = yaml.safe_load(answer.context["text"])["teams"]
    return dict(written)


def test_the_form_dates_what_changes_and_keeps_the_rest(adam: Client) -> None:
    written = look(adam, cost_center="CC-211", changes_from="2026-12-12")
    assert written["cost_center"] == [{"value": "CC-210"}, {"value": "CC-211", "valid_from": "2026-12-11T16:00:00+00:00"}]
    assert (written["department"], written["parent"]) == ("R&D", "research")
    assert look(adam, department="Products")["department"] == "Products"


def test_the_form_of_a_dated_team_shows_and_keeps_what_is_now(tmp_path: Path, adam: Client) -> None:
    apply(tmp_path, teams=teams(cost_center=MOVES, **DATED))
    cost_centers_refresh(now=datetime(2026, 12, 1, tzinfo=UTC))
    page = adam.get("/ownership/teams/", {"edit": "nlp"}).content.decode()
    assert ('value="CC-211"' in page, 'value="[{' in page) == (True, False)
    sent = {"file": SimpleUploadedFile("teams.csv", adam.get("/ownership/teams/?table=teams&as=csv").content)}
    assert "Nothing changes." in adam.post("/ownership/look/file/", sent).content.decode()


def test_documents_print_the_cost_centres_with_their_dates(tmp_path: Path) -> None:
    people()
    apply(tmp_path, teams=teams(cost_center=MOVES))
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    bill()
    document = read_document(document_of(Invoice.objects.get()))
    assert cost_centers_text(document.recipient) == "CC-210 · 2026-10-11 00:00 CC-211"
