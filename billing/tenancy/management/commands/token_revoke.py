"""`manage.py token_revoke NAME`"""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, number_of, operator
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_token_revoke


class Command(AppCommand):
    help = "End an API token at once, by its name or by the first characters of its secret."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the name it was made with, or its prefix such as spn_AbCd")
        self.take(parser, "by", "json")

    def run(self, *, name: str, by: str | None, json: bool, **_: Any) -> int:
        valid = ApiToken.objects.filter(revoked_at=None)
        tokens = list(valid.filter(name=name) or valid.filter(prefix=name[:8]))
        if not tokens:
            fail(f"name {name!r}: no valid token of that name or prefix")
        actor = operator(by, Right.MANAGE_PEOPLE)
        for token in tokens:
            api_token_revoke(token=token, actor=actor, now=timezone.now())
        if json:
            self.print_json({"ended": [{"name": token.name, "prefix": token.prefix} for token in tokens]})
            return DONE
        self.say(f"{number_of(len(tokens), 'token')} ended")
        return DONE
