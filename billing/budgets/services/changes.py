"""Changes of existing budgets. Allowing more spending from a budget with a cap takes two persons, as an override does.

That holds for pages and uploaded texts. `manage.py apply` takes effect at once: whoever runs it declares prices and owners
too, and scripts rely on it.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from django.db import transaction

from billing.approvals.kinds import Action, Approval, Refused, Why, register
from billing.approvals.limits import same_person_error
from billing.approvals.models import Step
from billing.approvals.services import approve, propose, withdraw
from billing.budgets.models import SCOPE_FIELDS, Budget, BudgetChange
from billing.budgets.services.budgets import BudgetError, BudgetWish, budget_of, budget_put, loosens, terms_of
from billing.budgets.services.overrides import CapKind
from billing.tenancy.models import Team
from metering.messages import Message

KEPT: Final = ("period", *SCOPE_FIELDS, "name", "owner", "amount", "reservation", "valid_from", "valid_until")


class BudgetChangeKind(CapKind[BudgetChange]):
    """Proposal that a budget with a cap allows more, or ends early."""

    name = "budget_change"
    model = BudgetChange
    audit = {
        Action.SUBMITTED: "budget_change_ask", Action.APPROVED: "budget_change_approve",
        Action.WITHDRAWN: "budget_change_end",
    }  # fmt: skip

    def missing(self, pk: int) -> BudgetError:
        return BudgetError(Message("change %(n)s of a budget: there is none of that id", n=pk))

    def refusal(self, row: BudgetChange, refused: Refused) -> Exception:
        if refused.why == Why.MAKER:
            return same_person_error(refused.actor, self.what(row))
        if refused.why == Why.CHANGED:
            return BudgetError(Message(
                "change %(n)s of %(budget)s: the budget is another one by now, ask again", n=row.pk, budget=row.subject
            ))
        return BudgetError(Message("change %(n)s of %(budget)s: it is decided already", n=row.pk, budget=row.subject))

    def approval(self, row: BudgetChange, actor: str, now: datetime) -> Approval:
        """Return the action that stores the requested budget, if its terms are still those of the request."""
        budget = Budget.objects.select_for_update().select_related("team").get(pk=row.budget_id)
        if terms_of(budget) != row.payload["before"]:
            raise self.refusal(row, Refused(Why.CHANGED, Action.APPROVED, actor))
        wish = msgspec.convert(row.payload["wish"], BudgetWish)
        return Approval(lambda: budget_put(team=budget.team, wish=wish, actor=actor, approved=True))

    def detail(self, row: BudgetChange, step: Step) -> dict[str, Any]:
        """Return the terms before and after."""
        return {"before": row.payload["before"], "after": row.after, "reason": row.reason, "asked_by": row.created_by}


CHANGE = BudgetChangeKind()
register(CHANGE)


def budget_change(
    *, team: Team, wish: BudgetWish, reason: str, now: datetime, actor: str
) -> tuple[bool, BudgetChange | None]:
    """Store a team's budget, new or changed; return whether anything changed, and the proposal that waits instead.

    A budget with a cap stays as it is until another person agrees that it allows more or ends early. A new wish replaces
    one that waits; the same wish changes nothing.  Raises BudgetError.
    """
    with transaction.atomic():
        known = budget_of(team, wish)
        if known is None or not loosens(known, wish):
            return budget_put(team=team, wish=wish, actor=actor), None
        # through JSON, since it is compared with a stored payload
        payload = msgspec.json.decode(msgspec.json.encode({"budget": known.pk, "before": terms_of(known), "wish": wish}))
        waits = changes_waiting(known).first()
        if waits and waits.payload == payload:
            return False, waits
        if not reason.strip():
            raise BudgetError(Message(
                "budget of %(team)s: it blocks, so another person agrees that it allows more; give a reason", team=team.code
            ))
        if waits:
            withdraw(CHANGE, waits.pk, actor=actor, now=now)
        return True, propose(CHANGE, subject=str(known), payload=payload, reason=reason.strip()[:500], actor=actor, now=now)


def changes_waiting(budget: Budget) -> Any:
    """Return the proposal that waits for a decision on this budget; at most one."""
    return BudgetChange.objects.filter(state=BudgetChange.State.SUBMITTED, payload__budget=budget.pk)


def budget_change_approve(*, change_id: int, now: datetime, actor: str) -> BudgetChange:
    """Approve a change.  Raises AuthorityError, BudgetError: it is decided, or the budget has changed since."""
    return approve(CHANGE, change_id, actor=actor, now=now)


def budget_change_end(*, change_id: int, now: datetime, actor: str) -> BudgetChange:
    """Withdraw a change that nobody has approved.  Raises BudgetError."""
    return withdraw(CHANGE, change_id, actor=actor, now=now)


def wish_of(budget: Budget, **changed: Any) -> BudgetWish:
    """Return the wish for a budget as it is, with other facts; recipients and thresholds stay as they are."""
    facts: Mapping[str, Any] = {
        **{name: getattr(budget, name) for name in KEPT}, "ladder": tuple(row.rung for row in budget.ladder.all()),
        "plan": {row.month: row.amount for row in budget.plan.all()},
    }  # fmt: skip
    plan: Mapping[str, Decimal] = changed.get("plan") or facts["plan"]
    amount = {"amount": sum(plan.values(), Decimal(0))} if plan else {}
    return BudgetWish(**{**facts, **changed, "plan": plan, **amount})
