"""What waits for a decision."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from billing.approvals.kinds import KINDS, Kind
from billing.approvals.models import Proposal
from billing.tenancy.access import access_of, same_person


def waiting(user: Any, now: datetime) -> list[Proposal]:
    """The proposals of every kind that `user` may decide on, the oldest first: none that they made or approved already."""
    access, name = access_of(user), user.get_username()
    mine = [kind for kind in KINDS.values() if any(access.may(right) for right in kind.deciders)]
    if mine:
        submitted = Proposal.objects.filter(state=Proposal.State.SUBMITTED).order_by()
        known = set(submitted.values_list("kind", flat=True).distinct())
        mine = [kind for kind in mine if kind.name in known]
    found = [
        row for kind in mine for row in _submitted(kind)
        if not any(same_person(name, one) for one in (*row.makers, *row.approvers))
        and not kind.lapsed(row, now) and any(access.may(right) for right in kind.rights(row, now))
    ]  # fmt: skip
    return sorted(found, key=lambda row: (row.created_at, row.pk))


def _submitted(kind: Kind[Any]) -> QuerySet[Proposal]:
    rows = kind.model._default_manager.filter(kind=kind.name, state=Proposal.State.SUBMITTED)
    return rows.prefetch_related("steps")
