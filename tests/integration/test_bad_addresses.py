"""What an address of the portal says and cannot mean: a page that names the field and the value, and shows no figures."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import apply, person, signed_in

pytestmark = pytest.mark.django_db
MONTH = "month '2026-13' must be written like 2026-10, from 2000 to 2199"
OF_A_MONTH = (
    "overview", "spending", "late", "close", "recovery", "commitments", "sources", "ownership", "teams/nlp", "explorer",
)  # fmt: skip
LISTS = (
    "overview", "invoices", "budgets", "anomalies", "disputes", "corrections", "late", "mails", "people", "audit",
    "ownership",
)  # fmt: skip
WRONG = {
    "quarantine/?status=gone": "status 'gone': one of dismissed, open, replayed",
    "spending/?by=person": "by 'person': one of accelerator, ", "spending/?part=x": "part 'x': one of end, hours, why",
    "spending/?then=x": "then 'x': one of end, hours, why", "spending/?team=npl": "team 'npl': there is no one team",
    "explorer/?part=x": "part 'x': one of filters, outlook, why", "explorer/?part=why&why=x": "why 'x': one of ",
    "explorer/?by=person": "by 'person': one of team, ", "explorer/?from=2026-02-30": "from '2026-02-30': a day such as",
    "explorer/?range=today": "today: no such range; one of", "sources/install/?kind=x": "kind 'x': one of ",
    "ownership/teams/?edit=npl": "edit 'npl': one of ", "budgets/channels/?edit=x": "edit 'x': there is none",
    "prices/drafts/new/?from=abc": "from 'abc': one of ", "prices/compare/?new=x": "new 'x': one of ",
    "prices/compare/?old=x": "old 'x': one of ", "prices/workbench/?against=x": "against 'x': ",
    "prices/workbench/?sheet=x": "sheet 'x': ", "invoices/?as=exe&table=invoices": "table 'invoices' as 'exe': this page",
    "invoices/?as=csv&table=people": "table 'people' as 'csv': this page has invoices as csv, xlsx",
}  # fmt: skip


@pytest.fixture(scope="module")
def fin(for_all_tests: Path) -> User:
    apply(for_all_tests)
    return person("fin", "finance", "admin", "auditor")


@pytest.fixture
def finance(fin: User, db: None) -> Client:
    return signed_in(fin)


def said(client: Client, address: str) -> str:
    answer = client.get(f"/{address}")
    assert answer.status_code == 404, address
    return answer.content.decode().replace("&#x27;", "'")


def test_what_is_no_month_is_named_by_every_page_in_the_same_words(finance: Client) -> None:
    for page in OF_A_MONTH:
        assert MONTH in said(finance, f"{page}/?month=2026-13"), page


def test_what_is_no_page_of_a_list_is_named(finance: Client) -> None:
    for page in LISTS:
        for number in ("x", "0", "-1", "1.5", "99"):
            assert f"page '{number}': a number from 1 to 1" in said(finance, f"{page}/?page={number}"), page
        assert finance.get(f"/{page}/?page=1").status_code == finance.get(f"/{page}/?page=").status_code == 200


@pytest.mark.parametrize("address", WRONG)
def test_a_value_that_is_none_is_named_and_not_passed_over(finance: Client, address: str) -> None:
    assert WRONG[address] in said(finance, address)


def test_what_a_page_does_not_know_stays(finance: Client) -> None:
    """A mail program, a chat or a search engine adds what it likes to a link."""
    for page in (*OF_A_MONTH, *LISTS):
        assert finance.get(f"/{page}/?utm_source=mail&gclid=1&_=2").status_code == 200, page


def test_the_words_are_in_the_language_of_the_reader_and_harmless(finance: Client) -> None:
    finance.post("/i18n/setlang/", {"language": "zh-hans"})
    assert "month '2026-13' 应写作 2026-10 的形式" in said(finance, "overview/?month=2026-13")
    assert "<script>" not in finance.get("/quarantine/?status=<script>alert(1)</script>").content.decode()


def test_what_is_somebody_elses_is_not_told_from_what_is_not_there(finance: Client) -> None:
    assert "belongs to a team that you are not a member of" in said(finance, "teams/nobody/")
    assert "belongs to a team" in said(finance, "nothing-here/")
