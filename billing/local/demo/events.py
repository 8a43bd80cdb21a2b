"""Events beside the usage: a credit note, a dispute, new budgets; each once per home, by the services of the pages."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import httpx

from billing.budgets.models import Budget
from billing.budgets.services import BudgetWish, budget_new
from billing.budgets.spending import month_lines
from billing.corrections.models import Dispute
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.invoices.models import Invoice, InvoiceLine, Note
from billing.local.demo.company import BUDGETS_NOW
from billing.local.demo.set_up_text import ZONE
from billing.local.process_list import demonstration_accounts
from billing.tenancy.models import ApiToken, Team
from billing.tenancy.tokens import api_token_create
from metering.intervals import billing_month
from pricing.money import round_to

CREDITED_TEAM, CREDITED = "multimodal", Decimal("800.00")
DISPUTING_TEAM, DISPUTED = "cv", Decimal("1250.00")
TEN = Decimal("10.00")


@dataclass(frozen=True)
class Events:
    """Events of the running month; documents are those of `month`, the last before the detailed one."""

    url: str
    month: str
    running: str
    now: datetime
    say: Callable[[str], None]

    def happen(self) -> None:
        """Run every event that has not happened yet."""
        demonstration_accounts()
        self._credit()
        self._dispute()
        self._budgets()

    def _line(self, team: str) -> tuple[Invoice, InvoiceLine]:
        """Return the largest line of devices of a team's invoice."""
        invoice = Invoice.objects.get(period__month=self.month, team__code=team)
        return invoice, invoice.lines.filter(kind="gpu").order_by("-amount", "position")[0]

    def _credit(self) -> None:
        """Issue a credit that one person requests and another one approves."""
        invoice, line = self._line(CREDITED_TEAM)
        if Note.objects.filter(invoice=invoice).exists():
            return
        wanted = Wanted("sla", "A failed switch lost the work of a night", "INC-2041", "finance", self.now)
        credits = [LineCredit(line.position, amount=CREDITED)]
        correction = credit_note_draft(number=str(invoice.number), credits=credits, wanted=wanted)
        correction_approve(correction_id=correction.pk, actor="controller", now=self.now)
        correction_issue(correction_id=correction.pk, actor="finance", now=self.now)
        self.say(f"  finance credits {CREDITED_TEAM} {CREDITED} of {invoice.number}, controller approves")

    def _dispute(self) -> None:
        """Open a dispute of a team over its own token; it waits for finance."""
        invoice, line = self._line(DISPUTING_TEAM)
        if Dispute.objects.filter(invoice=invoice).exists():
            return
        ApiToken.objects.filter(name="demo dispute", revoked_at=None).delete()
        team = Team.objects.get(code=DISPUTING_TEAM)
        _, token = api_token_create(name="demo dispute", scopes=["disputes:write"], team=team, actor="demo")
        claim = {
            "document": invoice.number, "lines": [line.position], "reason_code": "quantity", "amount": str(DISPUTED),
            "statement": "Our jobs waited for storage for two days; these hours are not ours to pay.",
        }  # fmt: skip
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{self.url}/api/v1/disputes", json=claim, headers=headers, timeout=60)
        answer.raise_for_status()
        self.say(f"  {DISPUTING_TEAM} disputes {DISPUTED} of {invoice.number}")

    def _budgets(self) -> None:
        """Create new budgets of the running month: one far from its end, one near, one exceeded."""
        start = billing_month(self.running, ZONE).start
        if Budget.objects.filter(valid_from=start).exists():
            return
        spent = dict.fromkeys(BUDGETS_NOW, Fraction(0))
        for line in month_lines(self.running, ZONE).lines:
            if line.team in spent:
                spent[line.team] += line.amount
        for code, percent in BUDGETS_NOW.items():
            amount = max(_in_tens(100 * spent[code] / percent), TEN)
            wish = BudgetWish(period="month", amount=amount, thresholds=(50, 80, 100), valid_from=start)
            budget_new(team=Team.objects.get(code=code), wish=wish, actor="finance")
            self.say(f"  finance gives {code} a budget of {amount} from {self.running} on")


def _in_tens(amount: Fraction) -> Decimal:
    return round_to(amount / 10, 0) * TEN
