"""Actors of pages, the API, tokens and commands, used alike by roles, the four-eyes rule and the audit log."""

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
from billing.tenancy.models import ApiToken, AuditEntry, Team

RIGHT_OF_SCOPE: Final[Mapping[str, Right]] = {
    "usage:read": Right.READ, "prices:read": Right.READ, "invoices:read": Right.READ, "budgets:read": Right.READ,
    "prices:write": Right.EDIT_PRICES, "prices:approve": Right.APPROVE,
    "teams:write": Right.OPERATE,
}  # fmt: skip
"""Right that a signed-in person needs in place of a token's scope; the other scopes are for tokens only."""
RIGHT_OF_OWNER: Final[Mapping[str, Right]] = {
    **RIGHT_OF_SCOPE, "usage:correct": Right.OPERATE, "journal:acknowledge": Right.CLOSE, "disputes:write": Right.DISPUTE,
    "people:provision": Right.MANAGE_PEOPLE,
}  # fmt: skip
"""Right that a token's owner needs for each scope, at creation and at each use; reporting usage needs none."""
DECIDES: Final = "prices:approve"


class Channel(StrEnum):
    """Channel through which an actor acts."""

    PORTAL = "portal"
    API = "api"  # with the session of a browser
    TOKEN = "token"  # noqa: S105  # the word, no secret
    COMMAND = "command"
    PROVIDER = "identity provider"  # it changes roles and ends sessions by itself


class Strength(StrEnum):
    """Strength of the proof of identity: how the session was opened or, at a command, a token of the account."""

    PASSWORD = "password"  # noqa: S105  # the word, no secret
    SECOND_FACTOR = "second factor"
    PROVIDER = "identity provider"
    OWN_TOKEN = "own token"  # noqa: S105  # the words, no secret


class Actor(str):
    """Name stored in history, with the account, token and session behind it.

    account: of the person, or of the token's owner; None for a token without owner and for a command without an account.
    strength: None if only a name identifies the actor.  person: identifier at the identity provider, if the session came
    through it.  system_account: of the operating system, at commands.
    """

    account: User | None
    token: ApiToken | None
    channel: Channel
    strength: Strength | None
    person: str
    system_account: str

    def __new__(
        cls, name: str, channel: Channel, *, account: User | None = None, token: ApiToken | None = None,
        strength: Strength | None = None, person: str = "", system_account: str = "",
    ) -> "Actor":  # fmt: skip
        made = super().__new__(cls, name)
        made.account, made.token, made.channel = account, token, channel
        made.strength, made.person, made.system_account = strength, person, system_account
        return made

    @cached_property
    def access(self) -> Access:
        return Access() if self.account is None else access_of(self.account)

    def may(self, right: Right, team: Team | None = None) -> bool:
        """Return True if a person has the right; a token has scopes, and no right of its owner."""
        return self.token is None and self.access.may(right, team)

    def has(self, scope: str) -> bool:
        """Return True if a token has the scope, or a person the corresponding right.

        A token cannot do what its owner may no longer do; a token that approves must have been made by its owner in person.
        """
        if self.token is None:
            return scope in RIGHT_OF_SCOPE and self.access.somewhere(RIGHT_OF_SCOPE[scope])
        if scope not in self.token.scopes or (scope == DECIDES and not made_by_owner(self.token)):
            return False
        return self.account is None or scope not in RIGHT_OF_OWNER or self.access.somewhere(RIGHT_OF_OWNER[scope])

    def teams(self) -> QuerySet[Team] | None:
        """Return the teams to which the actor is confined; None without limit, groups included."""
        confined = team_and_below(self.token.team_id) if self.token and self.token.team_id else None
        if (self.token and self.account is None) or self.access.may(Right.READ):
            return confined
        own = self.access.teams(Right.READ)
        return own if confined is None else own.filter(pk__in=confined.values("pk"))

    @property
    def source(self) -> str:
        """Return the one source that a token may report for; "" for any."""
        return self.token.source if self.token else ""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts that the audit log stores beside the name."""
        found = {
            "channel": self.channel, "account": self.account and self.account.pk, "token": self.token and self.token.pk,
            "session": self.strength, "person": self.person, "system_account": self.system_account,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def actor_of(request: HttpRequest | Any) -> Actor:
    """Return the sender of a request, with a session or (in the API) with a token; read once per request."""
    holder: Any = request
    known: Actor | None = getattr(holder, "_suanpan_actor", None)
    if known is None:
        token = getattr(request, "auth", None)
        known = actor_of_token(token) if isinstance(token, ApiToken) else actor_of_session(request, request.user)
        holder._suanpan_actor = known
    return known


def actor_of_session(request: HttpRequest, user: Any) -> Actor:
    """Return a person who signs in or out, or changes a password; with a strength only if already signed in."""
    channel = Channel.API if request.path.startswith("/api/") else Channel.PORTAL
    if not isinstance(user, User) or user != getattr(request, "user", user):
        return Actor(user.get_username(), channel, account=user if isinstance(user, User) else None)
    records = get_authentication_records(request, user)
    person = next((str(record["uid"]) for record in records if "uid" in record), "")
    methods = {record["method"] for record in records}
    return Actor(user.get_username(), channel, account=user, strength=_strength(methods), person=person)


def actor_of_provider(person: str) -> Actor:
    """Return the identity provider as an actor, which changes roles and ends sessions of one of its people."""
    return Actor("identity provider", Channel.PROVIDER, person=person)


def actor_of_token(token: ApiToken) -> Actor:
    return Actor(f"token:{token.name}", Channel.TOKEN, account=token.owner, token=token)


def made_by_owner(token: ApiToken) -> bool:
    """Return True if the token's owner made it in person, signed in or with such a token, as the audit log states."""
    made = AuditEntry.objects.filter(action="api_token_create", subject=token.name, detail__id=token.pk)
    known = made.filter(detail__acting__account=token.owner_id, detail__acting__has_key="session")
    return token.owner_id is not None and known.exists()


def actor_kept(name: str, facts: Mapping[str, Any] | None) -> "Actor | str":
    """Return the actor whose request a worker executes, from the `facts` of that moment; without facts the name alone."""
    if not facts:
        return name
    strength = facts.get("session")
    return Actor(
        name, Channel(facts["channel"]), account=User.objects.filter(pk=facts.get("account", 0)).first(),
        token=ApiToken.objects.filter(pk=facts.get("token", 0)).first(), strength=Strength(strength) if strength else None,
        person=facts.get("person", ""), system_account=facts.get("system_account", ""),
    )  # fmt: skip


def actor_at_command(name: str, shown: ApiToken | None = None) -> Actor:
    """Return the actor of a command: the active account of that name, in any spelling; without a name, the login name.

    `shown`: a token that proves the identity, if it belongs to that account and was made by it in person.
    """
    login = _login_name()
    if not name:
        return Actor(login, Channel.COMMAND, system_account=login)
    spelt = account_named(name)
    account = User.objects.filter(username=spelt, is_active=True).first()
    proven = account is not None and shown is not None and shown.owner_id == account.pk and made_by_owner(shown)
    strength = Strength.OWN_TOKEN if proven else None
    return Actor(spelt, Channel.COMMAND, account=account, strength=strength, system_account=login)


def _strength(methods: set[str]) -> Strength:
    if "socialaccount" in methods:
        return Strength.PROVIDER
    return Strength.SECOND_FACTOR if "mfa" in methods else Strength.PASSWORD


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
