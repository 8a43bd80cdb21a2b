"""Changing a budget that is there. What lets more be spent of one that blocks takes two persons, as passing its cap does."""

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
    """A budget that blocks is to allow more, or to end early."""

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
        """Store the budget as it was asked for, if it is still what the change was asked of."""
        budget = Budget.objects.select_for_update().select_related("team").get(pk=row.budget_id)
        if terms_of(budget) != row.payload["before"]:
            raise self.refusal(row, Refused(Why.CHANGED, Action.APPROVED, actor))
        wish = msgspec.convert(row.payload["wish"], BudgetWish)
        return Approval(lambda: budget_put(team=budget.team, wish=wish, actor=actor, approved=True))

    def detail(self, row: BudgetChange, step: Step) -> dict[str, Any]:
        """What it is, and what it becomes."""
        return {"before": row.payload["before"], "after": row.after, "reason": row.reason, "asked_by": row.created_by}


CHANGE = BudgetChangeKind()
register(CHANGE)


def budget_change(
    *, team: Team, wish: BudgetWish, reason: str, now: datetime, actor: str
) -> tuple[bool, BudgetChange | None]:
    """Store a team's budget, new or changed; whether anything changed, and what waits for a second person instead.

    A budget that blocks stays as it is until somebody else agrees that it allows more or ends early. A new wish takes the
    place of one that waits; the same one changes nothing.  Raises BudgetError.
    """
    with transaction.atomic():
        known = budget_of(team, wish)
        if known is None or not loosens(known, wish):
            return budget_put(team=team, wish=wish, actor=actor), None
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
    """What waits for a decision on this budget; at most one."""
    return BudgetChange.objects.filter(state=BudgetChange.State.SUBMITTED, payload__budget=budget.pk)


def budget_change_approve(*, change_id: int, now: datetime, actor: str) -> BudgetChange:
    """Bring it about.  Raises AuthorityError, BudgetError: it is decided, or the budget is another one by now."""
    return approve(CHANGE, change_id, actor=actor, now=now)


def budget_change_end(*, change_id: int, now: datetime, actor: str) -> BudgetChange:
    """Take back what nobody has approved.  Raises BudgetError."""
    return withdraw(CHANGE, change_id, actor=actor, now=now)


def wish_of(budget: Budget, **changed: Any) -> BudgetWish:
    """The wish for a budget as it is, with other facts; recipients and thresholds stay as they are."""
    facts: Mapping[str, Any] = {
        **{name: getattr(budget, name) for name in KEPT}, "ladder": tuple(row.rung for row in budget.ladder.all()),
        "plan": {row.month: row.amount for row in budget.plan.all()},
    }  # fmt: skip
    plan: Mapping[str, Decimal] = changed.get("plan") or facts["plan"]
    amount = {"amount": sum(plan.values(), Decimal(0))} if plan else {}
    return BudgetWish(**{**facts, **changed, "plan": plan, **amount})
