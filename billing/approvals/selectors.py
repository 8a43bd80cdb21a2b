"""What waits for a decision."""

from typing import Any

from billing.approvals.kinds import KINDS
from billing.approvals.models import Proposal
from billing.tenancy.access import access_of, same_person


def waiting(user: Any) -> list[Proposal]:
    """The proposals of every kind that `user` may decide on, the oldest first: none that they made or approved already."""
    access, name = access_of(user), user.get_username()
    kinds = [kind.name for kind in KINDS.values() if any(access.may(right) for right in kind.deciders)]
    rows = Proposal.objects.filter(state=Proposal.State.SUBMITTED, kind__in=kinds).prefetch_related("steps")
    return [
        row for row in rows.order_by("created_at", "id")
        if not row.made_by(name) and not any(same_person(name, one) for one in row.approvers)
    ]  # fmt: skip
