"""`manage.py account_create USER --name NAME --mail ADDRESS [--role ROLE]`"""

from argparse import ArgumentParser
from typing import Any

from django.db import transaction

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.models import Membership, Team
from billing.tenancy.people import account_create
from billing.tenancy.roles import role_grant


class Command(AppCommand):
    help = "Make a local account; its first password is shown once, and changed at the first sign-in."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="the name to sign in with")
        parser.add_argument("--name", required=True, help="the full name")
        parser.add_argument("--mail", required=True, metavar="ADDRESS", help="the mail address")
        parser.add_argument("--role", help=f"a role to begin with: {', '.join(Membership.Role.values)}")
        parser.add_argument("--team", metavar="CODE", help="the role is for this team or group (default: for all)")
        self.take(parser, "by", "json")

    def run(
        self, *, user: str, name: str, mail: str, role: str | None, team: str | None, by: str | None, json: bool, **_: Any
    ) -> int:
        for option, value in (("--name", name), ("--mail", mail)):
            if not value.strip():
                fail(f"{option} {value!r}: must not be empty")
        if team and not role:
            fail(f"--team {team!r}: takes a --role")
        confined = Team.objects.filter(code=team).first() if team else None
        if team and confined is None:
            fail(f"--team {team!r}: no such team")
        actor = operator(by, Right.MANAGE_PEOPLE, needed=False)
        with transaction.atomic():
            account, password = account_create(username=user, full_name=name, email=mail, actor=actor)
            if role:
                role_grant(user=account, role=role, team=confined, actor=actor)
        if json:
            self.print_json({"user": user, "role": role, "team": team, "first_password": password})
        else:
            self.say(f"{user}: sign in with {password}, which is shown this once and changed at the first sign-in")
        return DONE
