"""The sums under the lists of documents and budgets: of all rows listed, by hand, and nothing added twice."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.budgets.models import Budget, BudgetStatus
from billing.corrections.services.disputes import Claim, dispute_open
from billing.invoices.models import BillingPeriod, Invoice
from billing.portal.totals import BudgetRow, budget_totals, invoice_totals
from billing.tenancy.models import Team
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, money, person, token_record
from tests.factories.corrections import bill, credit, draft, part, people, whole

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FRIDAY = datetime(2026, 11, 6, 9, tzinfo=UTC)


def signed_in(role: str, team: str | None = None) -> Client:
    return factories.signed_in(person(f"{role}-{team}", role, team=team))


def foot(client: Client, address: str) -> list[str]:
    """The rows under the tables of a page, each as its words."""
    text = re.sub(r'<span class="under narrow">[^<]*</span>', "", client.get(address).content.decode())  # of phones
    feet = re.findall(r"<tfoot>(.*?)</tfoot>", text, re.S)
    rows = [row for found in feet for row in re.findall(r"<tr.*?</tr>", found, re.S)]
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """Issued: nlp owes 1000.00 of GPU hours and 8.00 of tokens, cv 26.20 of GPU hours."""
    people()
    apply(for_all_tests)
    person("tom", "lead", team="nlp")
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(
        allocation_record(1, quantity=10, ended_at=end, observed_until=end), allocation_record(2, namespace="cv", quantity=1)
    )
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill()


@pytest.fixture
def november(october: None, db: None) -> None:
    """Besides: a draft of 100.00 and one of 7.00 USD, a shadow document of 50.00, a void one of 3.00."""
    period = BillingPeriod.objects.create(
        month="2026-11", zone="Asia/Shanghai", start="2026-10-31T16:00:00Z", end="2026-11-30T16:00:00Z"
    )
    nlp, cv = Team.objects.get(code="nlp"), Team.objects.get(code="cv")
    common = {"period": period, "draft": {}, "issuer": "AI-INFRA"}
    Invoice.objects.create(team=nlp, currency="CNY", total=Decimal("100.00"), **common)
    Invoice.objects.create(team=cv, currency="USD", total=Decimal("7.00"), **common)
    Invoice.objects.create(team=cv, currency="CNY", total=Decimal("50.00"), shadow=True, status="preview", **common)
    Invoice.objects.create(team=nlp, currency="CNY", total=Decimal("3.00"), status="void", **common)


@pytest.mark.usefixtures("planned")
def test_budgets_of_a_period_add_up_without_what_lies_inside_another() -> None:
    """600 + 150 of 1000 + 500 is a half; nlp and its model are inside research; a quarter is added to no month."""
    assert foot(signed_in("finance"), "/budgets/") == [
        "Total 2 budgets of whole teams 2 of a part, or inside one of these, are not added "
        "2026-11 per month 750.00 3.00 1,500.00 50.0% 1,400.00",
        "Total 1 budget of a whole team 2026-Q4 per quarter 600.00 1.50 1,200.00 50.0% 700.00",
    ]


@pytest.mark.usefixtures("planned")
def test_a_budget_whose_group_is_not_listed_is_added_itself() -> None:
    assert foot(signed_in("lead", "nlp"), "/budgets/") == [
        "Total 1 budget of a whole team 1 of a part, or inside one of these, is not added "
        "2026-11 per month 300.00 1.50 400.00 75.0% 700.00",
    ]
    assert foot(signed_in("finance"), "/budgets/?q=QWEN") == []


@pytest.mark.usefixtures("planned")
def test_an_unknown_forecast_leaves_the_sum_unknown_and_what_is_not_counted_is_in_no_total() -> None:
    BudgetStatus.objects.filter(budget__team__code="cv", period="2026-11").update(forecast_p50=None)
    BudgetStatus.objects.filter(period="2026-Q4").delete()
    (row,) = foot(signed_in("finance"), "/budgets/")
    assert row.endswith("2026-11 per month 750.00 3.00 1,500.00 50.0% not yet")


@pytest.mark.usefixtures("planned")
def test_a_forecast_that_the_spending_has_overtaken_is_not_shown() -> None:
    BudgetStatus.objects.filter(budget__team__code="cv", period="2026-Q4").update(forecast_p50=Decimal("599.99"))
    text = signed_in("finance").get("/budgets/").content.decode()
    assert "599.99" not in text
    assert text.count("not yet") == 3  # besides the budget of a model, which has none, and the total of the quarter


@pytest.mark.usefixtures("planned")
def test_a_long_list_of_budgets_has_pages_and_the_total_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.portal.asked.PAGE_SIZE", 2)
    client = signed_in("finance")
    text = client.get("/budgets/?page=3").content.decode()
    assert "3 / 3" in text
    assert foot(client, "/budgets/?page=3") == foot(client, "/budgets/")


def test_a_budget_that_ended_is_in_no_total() -> None:
    team = Team.objects.create(code="nlp")
    now = timezone.now()
    ended = Budget.objects.create(team=team, period="month", amount=Decimal(10), thresholds=[], valid_until=now)
    lasting = Budget.objects.create(team=team, period="month", amount=Decimal(20), thresholds=[], valid_from=now)
    for budget in (ended, lasting):
        stand(budget, "2026-11", "5.00", None)
    rows = [BudgetRow(budget, budget.standings.get(), now) for budget in (ended, lasting)]
    (total,) = budget_totals(rows, {"nlp": frozenset({"nlp"})}, now)
    assert (total.number, total.amount, total.spent, total.used) == (1, money("20.00"), money("5.00"), Decimal("0.25"))


@pytest.mark.usefixtures("october")
def test_documents_of_one_state_have_one_total() -> None:
    assert foot(signed_in("finance"), "/invoices/") == ["Total 2 documents 1,034.20"]


@pytest.mark.usefixtures("november")
def test_what_is_not_owed_stands_beside_the_total_and_currencies_are_never_added() -> None:
    """1008.00 + 26.20 issued and 100.00 drafted are 1134.20."""
    assert foot(signed_in("finance"), "/invoices/") == [
        "Issued 2 documents 1,034.20",
        "Draft 1 document 100.00",
        "Total 3 documents CNY 1,134.20",
        "Not in the total: Showback 1 document 50.00",
        "Not in the total: Void 1 document 3.00",
        "Total 1 document USD 7.00",
    ]


@pytest.mark.usefixtures("november")
def test_the_total_follows_the_filter_and_the_teams_that_somebody_sees() -> None:
    finance = signed_in("finance")
    assert foot(finance, "/invoices/?q=2026-10") == ["Total 2 documents 1,034.20"]
    assert foot(finance, "/invoices/?q=cv&month=none") == [
        "Issued 1 document 26.20", "Total 1 document CNY 26.20", "Not in the total: Showback 1 document 50.00",
        "Total 1 document USD 7.00",
    ]  # fmt: skip
    assert foot(signed_in("lead", "nlp"), "/invoices/") == [
        "Issued 1 document 1,008.00", "Draft 1 document 100.00", "Total 2 documents 1,108.00",
        "Not in the total: Void 1 document 3.00",
    ]  # fmt: skip


@pytest.mark.usefixtures("october")
def test_every_page_of_a_long_list_says_the_total_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.portal.asked.PAGE_SIZE", 1)
    client = signed_in("finance")
    for page in ("1", "2"):
        assert foot(client, f"/invoices/?page={page}") == ["Total 2 documents 1,034.20"]


@pytest.mark.usefixtures("october")
def test_a_search_that_finds_too_much_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    client = signed_in("finance")
    assert "are found at once" not in client.get("/search/?q=AI-INFRA").content.decode()
    monkeypatch.setattr("billing.portal.views.trail.SHOWN", 2)
    assert "At most 2 are found at once" in client.get("/search/?q=AI-INFRA").content.decode()


@pytest.mark.usefixtures("october")
def test_a_total_is_one_question_to_the_database() -> None:
    with CaptureQueriesContext(connection) as queries:
        (total,) = invoice_totals(Invoice.objects.all())
    assert (len(queries), total.number, total.amount) == (1, 2, money("1034.20"))


@pytest.mark.usefixtures("october")
def test_the_file_of_a_list_has_its_rows_only() -> None:
    text = signed_in("finance").get("/invoices/?table=invoices&as=csv").content.decode()
    assert [row.rsplit(",", 1)[-1] for row in text.split()] == ["total", "26.20", "1008.00"]


@pytest.mark.usefixtures("october")
def test_notes_have_the_total_of_what_is_taken_back_and_charged_again() -> None:
    """50.00 and 8.00 credited and 5.00 for that 8.00 charged again; 26.20 at half the price waits: -26.20 and 13.10."""
    numbers = {invoice.team.code: str(invoice.number) for invoice in Invoice.objects.select_related("team")}
    credit(part("50.00"), number=numbers["nlp"])
    credit(whole(2, rebill_price=Decimal("5.00")), number=numbers["nlp"])
    draft(whole(1, rebill_price=Decimal("5.00")), number=numbers["cv"])
    assert foot(signed_in("finance"), "/corrections/") == [
        "Total −13.10",
        "Credits 2 documents −58.00", "Billed again 1 document 5.00", "Total 3 documents −53.00",
    ]  # fmt: skip
    assert foot(signed_in("lead", "cv"), "/corrections/") == []


@pytest.mark.usefixtures("october")
def test_disputes_have_the_total_of_what_is_disputed() -> None:
    person("kim", "lead", team="cv")
    for team, who, amount in (("nlp", "tom", Decimal("100.00")), ("cv", "kim", None)):
        number = str(Invoice.objects.get(team__code=team).number)
        dispute_open(claim=Claim(number, [1], "sla", "node lost", "INC-9", amount), actor=who, now=FRIDAY)
    assert foot(signed_in("finance"), "/disputes/") == ["Total 2 126.20", "Total 2 disputes 126.20"]
    assert foot(signed_in("lead", "cv"), "/disputes/") == ["Total 1 dispute 26.20"]


def plan(tmp_path: Path) -> None:
    """research (nlp below it) and cv may spend 1000 and 500 a month; nlp 400 of it, and 50 on one model."""
    teams = [{"code": "research", "name": "Research"}, {"code": "nlp", "parent": "research"}, {"code": "cv"}]
    budgets = [
        {"team": "research", "amount": "1000.00"}, {"team": "cv", "amount": "500.00"}, {"team": "nlp", "amount": "400.00"},
        {"team": "nlp", "amount": "50.00", "model": "qwen*"}, {"team": "cv", "period": "quarter", "amount": "1200.00"},
    ]  # fmt: skip
    apply(tmp_path, teams=teams, budgets=budgets)


def stand(budget: Budget, period: str, spent: str, forecast: str | None) -> None:
    now = timezone.now()
    BudgetStatus.objects.create(
        budget=budget, period=period, start=now - timedelta(days=9), end=now + timedelta(days=9), amount=budget.amount,
        spent=Decimal(spent), encumbered=Decimal("1.50"), as_of=now, generation=1,
        forecast_p50=None if forecast is None else Decimal(forecast),
    )  # fmt: skip


@pytest.fixture
def planned(tmp_path: Path) -> None:
    plan(tmp_path)
    spent = {"research month": "600.00", "cv month": "150.00", "nlp month": "300.00", "cv quarter": "600.00"}
    for budget in Budget.objects.filter(model=""):
        period = "2026-11" if budget.period == "month" else "2026-Q4"
        stand(budget, period, spent[f"{budget.team.code} {budget.period}"], "700.00")
    stand(Budget.objects.exclude(model="").get(), "2026-11", "45.00", None)
