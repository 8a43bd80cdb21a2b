"""`manage.py token_create NAME --scope usage:write`"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.models import Team
from billing.tenancy.tokens import SCOPES, TokenError, api_token_create

MAX_DAYS = 3650
READING = frozenset({"usage:read", "prices:read", "invoices:read", "budgets:read"})
OF_NOBODY = READING | {"usage:write"}
"""What a token of nobody may be for that is made without an account: reports of a gateway or agent, and reading."""
OWN = READING | {"prices:approve"}
"""What somebody may have a token of their own for without anybody else: to show who they are, and to approve."""


class Command(AppCommand):
    help = "Make an API token for a gateway, agent or script; it is shown once and kept as a hash."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the token is for")
        parser.add_argument("--scope", action="append", required=True, metavar="SCOPE", help=", ".join(SCOPES))
        parser.add_argument("--source", default="", help="may report only for this gateway source or cluster")
        parser.add_argument("--team", help="may read only what concerns this team")
        parser.add_argument("--owner", metavar="USER", help="the account that is behind it (default: that of --by)")
        parser.add_argument("--days", type=int, help="ends after so many days (default: no end)")
        self.add_actor(parser)
        self.add_json(parser)

    def run(
        self, *, name: str, scope: list[str], source: str, team: str | None, owner: str | None, days: int | None,
        by: str | None, json: bool, **_: Any,
    ) -> int:  # fmt: skip
        confined = Team.objects.filter(code=team).first() if team else None
        if team and confined is None:
            fail(f"--team {team!r}: no such team")
        actor = operator(by, needed=owner is not None or not OF_NOBODY.issuperset(scope))
        behind = User.objects.filter(username=owner, is_active=True).first() if owner else actor.account
        if owner and behind is None:
            fail(f"--owner {owner!r}: no active account of that name")
        if actor.account is not None and (behind != actor.account or not OWN.issuperset(scope)):
            actor = operator(by, Right.MANAGE_PEOPLE)
        if days is not None and not 1 <= days <= MAX_DAYS:
            fail(f"--days {days}: must be from 1 to {MAX_DAYS}")
        expires = timezone.now() + timedelta(days=days) if days else None
        try:
            token, presented = api_token_create(
                name=name, scopes=scope, actor=actor, source=source, team=confined, owner=behind, expires_at=expires
            )
        except TokenError as error:
            fail(str(error))
        if json:
            self.print_json({"name": token.name, "scopes": token.scopes, "token": presented})
        else:
            self.say(presented)
        return DONE
