"""Proposals that wait for a decision."""

from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from billing.approvals.kinds import KINDS, Kind
from billing.approvals.models import Proposal
from billing.tenancy.access import access_of, same_persons

SUBMITTED: Final = Proposal.objects.filter(state=Proposal.State.SUBMITTED)
"""Proposals that wait for a decision by anybody."""


def waiting(user: Any, now: datetime) -> list[Proposal]:
    """Return proposals of every kind that `user` may decide, the oldest first; not those the user made or approved."""
    access = access_of(user)
    mine = [name for name, kind in KINDS.items() if any(access.may(right) for right in kind.deciders)]
    known = set(SUBMITTED.filter(kind__in=mine).values_list("kind", flat=True).distinct().order_by()) if mine else ()
    rows = [row for name in known for row in _submitted(KINDS[name])]
    own = same_persons(user.get_username(), {name for row in rows for name in (*row.makers, *row.approvers)})
    found = [
        row for row in rows
        if own.isdisjoint((*row.makers, *row.approvers)) and not KINDS[row.kind].lapsed(row, now)
        and any(access.may(right) for right in KINDS[row.kind].rights(row, now))
    ]  # fmt: skip
    return sorted(found, key=lambda row: (row.created_at, row.pk))


def _submitted(kind: Kind[Any]) -> QuerySet[Proposal]:
    rows = kind.model._default_manager.filter(kind=kind.name, state=Proposal.State.SUBMITTED)
    return rows.prefetch_related("steps")
