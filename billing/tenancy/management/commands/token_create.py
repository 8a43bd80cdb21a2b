"""`manage.py token_create NAME --scope usage:write`"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.utils import timezone

from billing.tenancy.access import Right, account_named
from billing.tenancy.actors import DECIDES
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.models import Team
from billing.tenancy.tokens import DAYS, MOST_DAYS, OWN, SCOPES, api_token_create

OF_NOBODY = OWN - {DECIDES} | {"usage:write", "budgets:read"}
"""Scopes of tokens without owner that can be made without an account: reports of a gateway or agent, and reading."""


class Command(AppCommand):
    help = "Make an API token for a gateway, agent or script; it is shown once and kept as a hash."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the token is for")
        parser.add_argument("--scope", action="append", required=True, metavar="SCOPE", help=", ".join(SCOPES))
        parser.add_argument("--source", default="", help="may report only for this gateway source or cluster")
        parser.add_argument("--team", help="may read only what concerns this team")
        parser.add_argument("--owner", metavar="USER", help="the account behind it, that of --by (default), or '': nobody")
        ends = parser.add_mutually_exclusive_group()
        ends.add_argument("--days", type=int, default=DAYS, help=f"ends after so many days (default: {DAYS})")
        ends.add_argument("--no-end", action="store_true", help="ends only when somebody revokes it")
        self.take(parser, "by", "json")

    def run(
        self, *, name: str, scope: list[str], source: str, team: str | None, owner: str | None, days: int,
        no_end: bool, by: str | None, json: bool, **_: Any,
    ) -> int:  # fmt: skip
        confined = Team.objects.filter(code=team).first() if team else None
        if team and confined is None:
            fail(f"--team {team!r}: no such team")
        actor = operator(by, needed=bool(owner) or not OF_NOBODY.issuperset(scope))
        behind = None if owner == "" else actor.account
        if owner and (behind is None or account_named(owner) != behind.get_username()):
            fail(f"--owner {owner!r}: who makes a token sees it, so it belongs to {actor} or to nobody (--owner '')")
        if actor.account is not None and (behind is None or not OWN.issuperset(scope)):
            actor = operator(by, Right.MANAGE_PEOPLE)
        if not 1 <= days <= MOST_DAYS:
            fail(f"--days {days}: must be from 1 to {MOST_DAYS}")
        expires = None if no_end else timezone.now() + timedelta(days=days)
        token, presented = api_token_create(
            name=name, scopes=scope, actor=actor, source=source, team=confined, owner=behind, expires_at=expires
        )
        if json:
            self.print_json({"name": token.name, "scopes": token.scopes, "token": presented})
        else:
            self.say(presented)
        return DONE
