"""What the budget check needs from the database, read in a few small queries."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Q

from billing.budgets.counter import BudgetLine, Grant, Snapshot
from billing.budgets.models import BudgetStatus
from billing.budgets.selectors import cap_raises, ladder_of, scope_of, team_tree
from billing.rates.selectors import rate_card
from billing.tenancy.models import ApiToken, BillingSetup
from billing.tenancy.selectors import consumer_book
from billing.usage.selectors import known_keys

SCOPE = "budgets:read"


def snapshot_read(now: datetime) -> Snapshot | None:
    """Everything as of now; None before any set-up."""
    setup = BillingSetup.objects.first()
    if setup is None:
        return None
    return Snapshot(setup.currency, counters_read(now), consumer_book(), rate_card(), _grants(now))


def counters_read(now: datetime) -> list[BudgetLine]:
    """The counter of every budget in force."""
    tree, raises = team_tree(), cap_raises(now)
    standings = (
        BudgetStatus.objects.filter(start__lte=now, end__gt=now)
        .filter(Q(budget__valid_from=None) | Q(budget__valid_from__lte=now))
        .filter(Q(budget__valid_until=None) | Q(budget__valid_until__gt=now))
        .select_related("budget__team").prefetch_related("budget__ladder").order_by("budget_id")
    )  # fmt: skip
    return [
        BudgetLine(
            id=row.budget_id, name=str(row.budget), scope=scope_of(row.budget, tree), period=row.period, amount=row.amount,
            spent=row.spent, as_of=row.as_of, generation=row.generation, ladder=ladder_of(row.budget),
            reservation=row.budget.reservation, cap_raise=raises.get(row.budget_id, Decimal(0)),
        )
        for row in standings
    ]  # fmt: skip


def _grants(now: datetime) -> dict[str, Grant]:
    tree = team_tree()
    tokens = ApiToken.objects.filter(revoked_at=None, scopes__contains=[SCOPE]).filter(
        Q(expires_at=None) | Q(expires_at__gt=now)
    )
    return {
        token.digest: Grant(
            frozenset(token.scopes), token.source, tree[token.team.code] if token.team else None, token.expires_at
        )
        for token in tokens.select_related("team")
    }


def landed_among(keys: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Which of these records are in the ledger, and the newest refresh that had begun when that was seen.

    Looks at the ledger first and at the refresh second: any refresh that begins later has read what was seen.
    """
    seen = known_keys(keys)
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM budget_refresh")
        return seen, int(cursor.fetchone()[0])


def newest_generation() -> int:
    """The newest refresh that is kept; -1 before the first."""
    newest = BudgetStatus.objects.order_by("-generation").values_list("generation", flat=True).first()
    return -1 if newest is None else newest
