"""The search of every page: a little of everything that fits, and nothing that its reader may not see."""

from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from billing.invoices.models import Invoice, Note
from billing.tenancy.models import Team
from tests.factories import apply, ingest_allocations, ingest_tokens, person, signed_in, token_record
from tests.factories.corrections import bill, credit, people, whole
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 4, tzinfo=UTC)
QUERIES = 25


@pytest.fixture(scope="module")
def billed(for_all_tests: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: NOW)
        people()
        apply(for_all_tests)
        ingest_allocations(
            hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1,
                 workload={"kind": "Job", "name": "train-nlp"}),
            hold(2, "2026-10-10T02:00:00Z", "2026-10-10T04:00:00Z", quantity=1, namespace="cv",
                 workload={"kind": "Job", "name": "train-cv"}),
        )  # fmt: skip
        ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))
        bill()
        for invoice in Invoice.objects.all():
            credit(whole(1, amount=Decimal("4.00")), number=str(invoice.number))
        person("lead", "lead", team="nlp")
        person("other", "lead", team="cv")


@pytest.fixture
def october(billed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """nlp runs the job train-nlp and asks llama-3-8b, cv runs train-cv; both have a credit note. It is 20 November."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)


def part(client: Client, text: str) -> str:
    response = client.get("/search/", {"q": text}, headers={"HX-Request": "true"})
    assert response.status_code == 200
    return unescape(response.content.decode())


def found(client: Client, text: str) -> dict[str, list[tuple[str, str]]]:
    """Names and addresses by kind."""
    answer = client.get("/search/", {"q": text}, headers={"HX-Request": "true"})
    return {hits.name: [(hit.text, hit.address) for hit in hits.shown] for hits in answer.context["found"]}


def numbers(team: str) -> list[str]:
    invoice = Invoice.objects.get(team__code=team)
    return sorted([str(invoice.number), *Note.objects.filter(team__code=team).values_list("number", flat=True)])


def test_a_lead_finds_the_things_of_the_own_team_and_nothing_foreign(october: None) -> None:
    mine, theirs = signed_in("lead"), signed_in("other")
    for asked, kind in (("train", "job"), ("2026-00000", "documents"), ("vision", "teams"), ("nlp", "teams"),
                        ("llama", "model")):  # fmt: skip
        of_nlp = {text for text, _ in found(mine, asked).get(kind, [])}
        of_cv = {text for text, _ in found(theirs, asked).get(kind, [])}
        expected = {
            "train": ({"train-nlp"}, {"train-cv"}), "2026-00000": (set(numbers("nlp")), set(numbers("cv"))),
            "vision": (set(), {"Vision"}), "nlp": ({"NLP Research"}, set()), "llama": ({"llama-3-8b"}, set()),
        }[asked]  # fmt: skip
        assert (of_nlp, of_cv) == expected, asked
    everything = part(mine, "train") + part(mine, "2026") + part(mine, "vision") + part(mine, "cv")
    assert not any(name in everything for name in ("train-cv", *numbers("cv"), "/teams/cv/"))


def test_finance_finds_what_every_team_has_and_each_leads_to_its_page(october: None) -> None:
    client = signed_in("sam")
    jobs = dict(found(client, "train")["job"])
    assert sorted(jobs) == ["train-cv", "train-nlp"]
    assert sorted(text for text, _ in found(client, "2026-0000")["documents"]) == sorted(numbers("nlp") + numbers("cv"))
    other = [hits for text in ("000001", "vision", "llama", "invoices") for hits in found(client, text).values()]
    addresses = [*jobs.values(), *(address for hits in other for _, address in hits)]
    assert {client.get(address).status_code for address in addresses} == {200}
    assert "25.00" in client.get(jobs["train-nlp"]).content.decode()  # 2.5 hours of one device at 10.00


def test_pages_are_those_of_the_own_menu_in_the_own_language(october: None) -> None:
    assert found(signed_in("sam"), "can we close") == {"pages": [("Can we close?", "/close/")]}
    assert found(signed_in("lead"), "can we close") == {}
    assert ("预算", "/budgets/") in found(signed_in("lead", "zh-hans"), "预算")["pages"]


def test_every_word_must_fit_and_one_character_asks_nothing(october: None) -> None:
    client = signed_in("sam")
    assert found(client, "train nlp")["job"] == [("train-nlp", dict(found(client, "train")["job"])["train-nlp"])]
    assert found(client, "t") == {}
    assert "Nothing is called that" not in part(client, "t")
    assert "Nothing is called that" in part(client, "nobody-has-this-name")
    assert "&lt;script&gt;" in client.get("/search/?q=<script>", headers={"HX-Request": "true"}).content.decode()


def test_six_of_a_kind_are_shown_and_it_is_said_that_there_is_more(
    october: None, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    Team.objects.bulk_create(Team(code=f"lab-{number:03}", name=f"Lab {number:03}") for number in range(300))
    client = signed_in("sam")
    part(client, "lab")
    with django_assert_max_num_queries(QUERIES):
        answer = client.get("/search/", {"q": "lab"}, headers={"HX-Request": "true"})
    assert [text for text, _ in found(client, "lab")["teams"]] == [f"Lab 00{number}" for number in range(6)]
    assert answer.content.decode().count("There is more: add a word.") == 1


def test_without_htmx_the_same_address_is_the_page_of_documents(october: None) -> None:
    text = signed_in("lead").get("/search/?q=2026-0000").content.decode()
    assert "<h1>Search</h1>" in text
    assert Invoice.objects.get(team__code="nlp").number in text
