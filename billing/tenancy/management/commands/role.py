"""`manage.py role grant|revoke|list`"""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.models import Membership, Team
from billing.tenancy.roles import role_grant, role_revoke


class Command(AppCommand):
    help = "Who holds which role: grant or revoke one, or list them all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="grant|revoke|list")
        for action in ("grant", "revoke"):
            chosen = actions.add_parser(action, help=f"{action} a role")
            chosen.add_argument("user", metavar="USER")
            chosen.add_argument("role", metavar="ROLE", help=", ".join(Membership.Role.values))
            chosen.add_argument("--team", metavar="CODE", help="a team, or a group with all below it (default: everything)")
            self.take(chosen, "by")
        self.take(actions.add_parser("list", help="every person with their roles"), "json")

    def run(self, *, action: str, **options: Any) -> int:
        if action == "list":
            return self._list(json=options["json"])
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            fail(f"user {options['user']!r}: there is no such account")
        team = Team.objects.filter(code=options["team"]).first() if options["team"] else None
        if options["team"] and team is None:
            fail(f"team {options['team']!r}: there is no such team")
        actor = operator(options["by"], Right.MANAGE_PEOPLE)
        change = role_grant if action == "grant" else role_revoke
        with transaction.atomic():
            changed = change(user=user, role=options["role"], team=team, actor=actor)
        where = f"for {team.code}" if team else "for all teams"
        self.say(f"{user.username}: {options['role']} {where}{'' if changed else ' (nothing changed)'}")
        return DONE

    def _list(self, *, json: bool) -> int:
        held = [
            {"user": row.user.username, "role": row.role, "team": row.team.code if row.team else None, "origin": row.origin}
            for row in Membership.objects.select_related("user", "team").order_by("user__username", "role", "team__code")
        ]
        held += [
            {"user": user.username, "role": "superuser", "team": None, "origin": "local"}
            for user in User.objects.filter(is_superuser=True).order_by("username")
        ]
        if json:
            self.print_json({"roles": held})
            return DONE
        for row in held:
            self.say(f"{row['user']:<24} {row['role']:<12} {row['team'] or 'all teams':<24} {row['origin']}")
        return DONE
