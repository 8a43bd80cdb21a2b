"""What the budget check needs from the database, read in a few small queries."""

from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.budgets.counter import BudgetLine, Counter, Grant, Snapshot
from billing.budgets.models import BudgetStanding
from billing.budgets.selectors import ladder_of, scope_of, team_tree
from billing.rates.selectors import rate_card
from billing.tenancy.models import ApiToken, BillingSetup
from billing.tenancy.selectors import consumer_book

SCOPE = "budgets:read"


def snapshot_read(now: datetime, kept: Snapshot | None = None) -> Snapshot | None:
    """The counters of now; from `kept` whatever else a check needs, if given. None before any set-up."""
    setup = BillingSetup.objects.first()
    if setup is None:
        return None
    if kept is None:
        return Snapshot(setup.currency, _lines(now), consumer_book(), rate_card(), _grants(now))
    lines = _lines(now)
    return kept if lines == kept.budgets else Snapshot(setup.currency, lines, kept.consumers, kept.prices, kept.grants)


def _lines(now: datetime) -> list[BudgetLine]:
    tree = team_tree()
    standings = (
        BudgetStanding.objects.filter(start__lte=now, end__gt=now)
        .filter(Q(budget__valid_from=None) | Q(budget__valid_from__lte=now))
        .filter(Q(budget__valid_until=None) | Q(budget__valid_until__gt=now))
        .select_related("budget__team").prefetch_related("budget__ladder").order_by("budget_id")
    )  # fmt: skip
    return [
        BudgetLine(
            id=row.budget_id, name=str(row.budget), scope=scope_of(row.budget, tree), period=row.period, amount=row.amount,
            spent=row.spent, as_of=row.as_of, generation=row.generation, ladder=ladder_of(row.budget),
            reservation=row.budget.reservation,
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


def landed_note(counter: Counter) -> None:
    """Tell the counter which of its named requests are in the ledger by now.

    Looks at the ledger first and at the newest refresh second: any refresh that began later has read what was seen.
    """
    keys = counter.waiting_keys()
    if not keys:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT key FROM token_key WHERE key = ANY(%s)", [[UUID(bytes=key) for key in keys]])
        seen = [row[0].bytes for row in cursor.fetchall()]
        cursor.execute("SELECT last_value FROM budget_refresh")
        generation = int(cursor.fetchone()[0])
    counter.landed(seen, generation)
