"""A team is only shown what it would owe, until it is charged: a month that was shown is never charged."""

import pytest

from billing.closing.services.showback import billing_mode_put
from billing.invoices.models import Invoice
from tests.scenarios.company import Company, morning_after


@pytest.fixture
def october(company: Company) -> Company:
    """nlp is charged from December on; cv always."""
    for month, mode in (("2026-10", "shadow"), ("2026-12", "chargeback")):
        billing_mode_put(
            team="nlp", from_month=month, mode=mode, reason="first quarter", actor="fin", now=morning_after("2026-10")
        )
    company.uses("nlp-train", gpus=10, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.uses("cv", gpus=3, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.bills("2026-10")
    return company


def documents(month: str) -> list[str]:
    """Team, total and number, if there is one."""
    found = Invoice.objects.filter(period__month=month).order_by("team__code", "-shadow")
    return [f"{invoice.team.code} {invoice.total} {invoice.number or 'only shown'}" for invoice in found]


def test_usage_of_a_shown_month_is_never_charged_however_late_it_comes(october: Company) -> None:
    assert documents("2026-10") == ["cv 30.00 AI-INFRA-2026-000001", "nlp 100.00 only shown"]
    october.bills("2026-11")
    october.uses("nlp-train", gpus=5, since="2026-10-10 08:00", until="2026-10-10 09:00")
    october.uses("nlp-train", gpus=1, since="2026-12-03 08:00", until="2026-12-03 09:00")
    october.bills("2026-12")
    assert documents("2026-12") == ["nlp 50.00 only shown", "nlp 10.00 AI-INFRA-2026-000002"]
    assert (october.owes("nlp"), october.proven("2026-12")) == ("10.00", True)


def test_a_price_agreed_afterwards_makes_no_notes_for_what_was_only_shown(october: Company) -> None:
    october.approves_change(october.proposes_price("9", since="2026-10-01"))
    assert october.notes() == ["AI-INFRA-CN-2026-000001 cv -30.00", "AI-INFRA-RB-2026-000001 cv 27.00"]
