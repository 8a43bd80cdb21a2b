"""Who acts: made here for pages, the API, tokens and commands alike; roles, four eyes and the audit log ask nothing else."""

import getpass
import os
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from allauth.account.authentication import get_authentication_records
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest

from billing.tenancy.access import Access, Right, access_of, account_named, team_and_below
from billing.tenancy.models import ApiToken, Team

RIGHT_OF_SCOPE: Final[Mapping[str, Right]] = {
    "usage:read": Right.READ, "prices:read": Right.READ, "invoices:read": Right.READ, "budgets:read": Right.READ,
    "prices:write": Right.EDIT_PRICES, "prices:approve": Right.APPROVE,
}  # fmt: skip
"""What a signed-in person needs for what a token needs the scope for; the other scopes are of tokens only."""
DECIDES: Final = "prices:approve"


class Channel(StrEnum):
    """By which way somebody acts."""

    PORTAL = "portal"
    API = "api"  # with the session of a browser
    TOKEN = "token"  # noqa: S105  # the word, no secret
    COMMAND = "command"


class Strength(StrEnum):
    """What a session was opened with."""

    PASSWORD = "password"  # noqa: S105  # the word, no secret
    SECOND_FACTOR = "second factor"
    PROVIDER = "identity provider"


class Actor(str):
    """The name that history keeps, and who and what is behind it.

    account: of the person, or of the token's owner; None for a token of nobody and for a command without an account.
    strength: of the session; None where there is none.  system_account: of the operating system, at commands.
    """

    account: User | None
    token: ApiToken | None
    channel: Channel
    strength: Strength | None
    system_account: str

    def __new__(
        cls, name: str, channel: Channel, *, account: User | None = None, token: ApiToken | None = None,
        strength: Strength | None = None, system_account: str = "",
    ) -> "Actor":  # fmt: skip
        made = super().__new__(cls, name)
        made.account, made.token, made.channel = account, token, channel
        made.strength, made.system_account = strength, system_account
        return made

    @cached_property
    def access(self) -> Access:
        """The rights of the account."""
        return Access() if self.account is None else access_of(self.account)

    def may(self, right: Right, team: Team | None = None) -> bool:
        """Whether a person has the right; a token has scopes, and no right of its owner."""
        return self.token is None and self.access.may(right, team)

    def has(self, scope: str) -> bool:
        """Whether a token has the scope, or a person the right that belongs to it.

        A token that decides has an owner who may, today as on the day on which it was made.
        """
        right = RIGHT_OF_SCOPE.get(scope)
        if self.token is None:
            return right is not None and self.access.somewhere(right)
        return scope in self.token.scopes and (scope != DECIDES or self.access.may(Right.APPROVE))

    def teams(self) -> QuerySet[Team] | None:
        """The teams that a token or person is confined to; None where they see all, groups included."""
        if self.token is not None:
            return team_and_below(self.token.team_id) if self.token.team_id else None
        return None if self.access.may(Right.READ) else self.access.teams(Right.READ)

    @property
    def source(self) -> str:
        """The one source that a token may report for; empty: any."""
        return self.token.source if self.token else ""

    @property
    def facts(self) -> dict[str, Any]:
        """What the audit log keeps beside the name."""
        found = {
            "channel": self.channel, "account": self.account and self.account.pk, "token": self.token and self.token.pk,
            "session": self.strength, "system_account": self.system_account,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def actor_of(request: HttpRequest | Any) -> Actor:
    """Who sends a request, with a session or (in the API) with a token; read once per request."""
    holder: Any = request
    known: Actor | None = getattr(holder, "_suanpan_actor", None)
    if known is None:
        token = getattr(request, "auth", None)
        known = actor_of_token(token) if isinstance(token, ApiToken) else _of_session(request, request.user)
        holder._suanpan_actor = known
    return known


def actor_of_token(token: ApiToken) -> Actor:
    """The bearer of a token."""
    return Actor(f"token:{token.name}", Channel.TOKEN, account=token.owner, token=token)


def actor_at_command(name: str) -> Actor:
    """Who runs a command: the active account of that name, however it is spelt; without a name, the login name."""
    login = _login_name()
    if not name:
        return Actor(login, Channel.COMMAND, system_account=login)
    spelt = account_named(name)
    account = User.objects.filter(username=spelt, is_active=True).first()
    return Actor(spelt, Channel.COMMAND, account=account, system_account=login)


def _of_session(request: HttpRequest, user: Any) -> Actor:
    channel = Channel.API if request.path.startswith("/api/") else Channel.PORTAL
    account = user if isinstance(user, User) else None
    return Actor(user.get_username(), channel, account=account, strength=_strength(request, account))


def _strength(request: HttpRequest, account: User | None) -> Strength | None:
    methods = {record["method"] for record in get_authentication_records(request, account)}
    if "socialaccount" in methods:
        return Strength.PROVIDER
    return None if account is None else Strength.SECOND_FACTOR if "mfa" in methods else Strength.PASSWORD


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
