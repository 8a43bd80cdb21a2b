"""Finding documents by what people know of them, and who changed what and why."""

from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from billing.corrections.services.settlement import document_settle
from billing.invoices.models import Invoice, Note
from billing.tenancy.audit import audit_record
from billing.tenancy.models import AuditEntry
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import IN_NOVEMBER, bill, credit, people, whole

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def issued(for_all_tests: Path) -> Invoice:
    """Two invoices of 209.62 (nlp) and 78.61 (cv), of nlp's 4.00 credited; nlp's is posted as DOC-4711."""
    people()
    apply(for_all_tests)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=3))
    bill()
    mine = Invoice.objects.get(team__code="nlp")
    credit(whole(1, amount=Decimal("4.00")), number=str(mine.number))
    document_settle(number=str(mine.number), reference="DOC-4711", actor="sam", now=IN_NOVEMBER)
    return mine


def found(client: Client, text: str) -> list[tuple[str, str, str]]:
    response = client.get("/search/", {"q": text})
    assert response.status_code == 200
    return [(item.kind, item.team.code, str(item.total)) for item in response.context["found"]]


NLP, CV, CREDIT = ("invoice", "nlp", "209.62"), ("invoice", "cv", "78.61"), ("credit", "nlp", "-4.00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-000001", {CV, CREDIT}), ("vision", {CV}), ("2026-10", {NLP, CV}), ("2026-11", {CREDIT}),
        ("209.62", {NLP}), ("4.00", {CREDIT}), ("-4.00", {CREDIT}), ("doc-4711", {NLP}), ("nlp 2026-10", {NLP}),
        ("nlp 78.61", set()), ("", set()),
        ("'; --", set()), ("nan", set()),
    ],
)  # fmt: skip
def test_a_document_is_found_by_what_somebody_knows_of_it(
    issued: Invoice, text: str, expected: set[tuple[str, str, str]]
) -> None:
    assert set(found(signed_in("viv"), text)) == expected


def test_nobody_finds_the_documents_of_others(issued: Invoice) -> None:
    person("mia", "viewer", team="cv")

    assert found(signed_in("mia"), "2026-10") == [CV]
    assert found(signed_in("mia"), "DOC-4711") == []
    text = signed_in("mia").get("/search/?q=2026&table=documents&as=csv").content.decode("utf-8-sig")
    assert [row.split(",")[2] for row in text.splitlines()[1:]] == ["cv"]


def entries(client: Client, **query: Any) -> list[tuple[str, str]]:
    response = client.get("/audit/", query)
    assert response.status_code == 200
    return [(row["entry"].actor, row["entry"].action) for row in response.context["rows"]]


def test_an_auditor_reads_who_changed_what_and_why(issued: Invoice) -> None:
    audit_record(
        actor="ann", action="budget_put", subject="nlp month",
        detail={"before": {"amount": "10.00", "period": "month"}, "after": {"amount": "20.00", "period": "month"},
                "reason": "campaign <b>"},
    )  # fmt: skip
    viv = signed_in("viv")

    response = viv.get("/audit/", {"who": "ann", "kind": "budget_put"})
    (row,) = response.context["rows"]
    assert (row["why"], row["facts"]) == ("campaign <b>", [("amount", "10.00", "20.00")])
    assert "campaign &lt;b&gt;" in response.content.decode()
    assert entries(viv, about=["nothing", "nlp month"], who="ann") == [("ann", "budget_put")]
    assert entries(viv, kind="document_settle") == [("sam", "document_settle")]
    text = viv.get("/audit/?who=ann&table=audit&as=csv").content.decode("utf-8-sig").splitlines()
    assert text[1].endswith(",ann,budget_put,nlp month,campaign <b>,amount: 10.00 -> 20.00")


def test_days_of_the_log_are_local_and_both_ends_count(issued: Invoice) -> None:
    viv = signed_in("viv")
    last = AuditEntry.objects.latest("id")
    day = last.at.astimezone(ZoneInfo(issued.period.zone)).date()

    assert len(viv.get("/audit/", {"since": day, "until": day}).context["rows"]) > 0
    assert viv.get("/audit/", {"until": "2020-01-01"}).context["rows"] == []
    assert viv.get("/audit/", {"since": "soon"}).status_code == 400


def test_the_page_of_an_object_leads_to_its_entries(issued: Invoice) -> None:
    viv, number = signed_in("viv"), str(issued.number)
    note = Note.objects.get()

    assert f"/audit/?about=2026-10%20nlp&amp;about={number}" in viv.get(f"/invoices/{issued.pk}/").content.decode()
    assert ("sam", "document_settle") in entries(viv, about=["2026-10 nlp", number])
    assert f"/audit/?about={note.number}" in viv.get(f"/notes/{note.pk}/").content.decode()
    person("lena", "lead", team="nlp")
    assert "/audit/" not in signed_in("lena").get(f"/invoices/{issued.pk}/").content.decode()


@pytest.mark.usefixtures("issued")
def test_a_sign_in_that_failed_is_nobodys() -> None:
    Client().post("/login/", {"login": "viv", "password": "wrong"})
    page = signed_in("viv").get("/audit/?kind=sign_in_failed").content.decode()
    assert (page.count("nobody signed in"), ">database" in page) == (2, False)
    assert entries(signed_in("viv"), kind="sign_in_failed") == [("database:suanpan", "sign_in_failed")]
