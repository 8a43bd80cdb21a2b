"""API tokens: created once, shown once, stored as a hash."""

import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from threading import Lock
from time import monotonic

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.tenancy.access import access_of
from billing.tenancy.actors import DECIDES, RIGHT_OF_OWNER, RIGHT_OF_SCOPE, Actor
from billing.tenancy.audit import audit_record
from billing.tenancy.models import ApiToken, Team
from metering.messages import Message, UserError

SCOPES = (
    "usage:write", "usage:read", "usage:correct", "prices:read", "prices:write", "prices:approve", "invoices:read",
    "budgets:read", "journal:acknowledge", "disputes:write", "teams:write",
    "people:provision",
)  # fmt: skip
OF_ALL_TEAMS = {"usage:write", "prices:write", DECIDES, "teams:write", "people:provision"}
OWN = frozenset({"usage:read", "prices:read", "invoices:read", DECIDES})
"""Scopes of tokens that a person may create for themselves: to read, to prove identity, to approve.

Without `budgets:read`, which also reserves part of a team's remaining budget.
"""
DAYS = 90
"""Default lifetime of a token in days."""
MOST_DAYS = 3650
ROTATION = timedelta(days=7)
TOUCH_EVERY = timedelta(minutes=1)
ENDS_SOON = timedelta(days=14)
IN_USE = timedelta(days=2)
"""Time since the last use within which a token counts as in use, so that its end is announced."""
RECENT_SECONDS = 1.0
MOST_RECENT = 10_000

_recent: dict[str, tuple[ApiToken, float]] = {}
_valid: tuple[frozenset[str], float] = frozenset(), float("-inf")
_listing = Lock()


class TokenError(UserError, ValueError):
    """Error of a token that cannot be created as requested."""

    code = "api_token"


def api_token_create(
    *,
    name: str,
    scopes: list[str],
    actor: str,
    source: str = "",
    team: Team | None = None,
    owner: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Create a token; return it with the secret, which cannot be read again."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise TokenError(Message(
            "scopes %(scopes)s: choose from %(all)s", scopes=", ".join(unknown) or "(none)", all=", ".join(SCOPES)
        ))
    if {"prices:write", "prices:approve"} <= set(scopes):
        raise TokenError(Message(
            "scopes prices:write and prices:approve: who makes prices does not approve them, make two tokens"
        ))
    if DECIDES in scopes and owner is None:
        raise TokenError(Message("scope prices:approve: who approves is somebody, so the token needs an owner"))
    if team is not None and (whole := sorted(set(scopes) & OF_ALL_TEAMS)):
        raise TokenError(Message(
            "scopes %(scopes)s: reach every team, so a token of team %(team)s cannot have them",
            scopes=", ".join(whole), team=team.code,
        ))
    if owner is not None:
        _owner_check(scopes, owner, actor)
    presented = f"spn_{secrets.token_urlsafe(32)}"
    token = ApiToken.objects.create(
        name=name, prefix=presented[:8], digest=token_digest(presented), scopes=sorted(set(scopes)), source=source,
        team=team, owner=owner, expires_at=expires_at,
    )  # fmt: skip
    audit_record(
        actor=actor, action="api_token_create", subject=name,
        detail={"id": token.pk, "scopes": token.scopes, "source": source, "owner": owner.get_username() if owner else ""},
    )  # fmt: skip
    return token, presented


def _owner_check(scopes: list[str], owner: User, actor: str) -> None:
    """Raise TokenError if the owner lacks a right for a scope, or does not create an approving token in person."""
    name, access = owner.get_username(), access_of(owner)
    for scope in sorted(set(scopes) & RIGHT_OF_OWNER.keys()):
        right = RIGHT_OF_OWNER[scope]
        if not access.somewhere(right):
            raise TokenError(Message(
                "scope %(scope)s: %(owner)s has no right %(right)s", scope=scope, owner=name, right=right.value
            ))
    if DECIDES in scopes and not (isinstance(actor, Actor) and actor.account == owner and actor.strength):
        raise TokenError(Message(
            'scope prices:approve: %(owner)s makes this token in person, on the page "My tokens"', owner=name
        ))


def scopes_of_own(actor: Actor) -> list[str]:
    """Return the scopes of tokens that the actor may create for themselves."""
    return [scope for scope in SCOPES if scope in OWN and actor.access.somewhere(RIGHT_OF_SCOPE[scope])]


def api_token_revoke(*, token: ApiToken, actor: str, now: datetime) -> None:
    """End a token at once; one that is revoked already stays as it is, without another audit entry."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
            audit_record(actor=actor, action="api_token_revoke", subject=token.name)
    _recent.clear()


def api_token_rotate(*, token: ApiToken, actor: str, now: datetime, days: int) -> tuple[ApiToken, str]:
    """Create a token with the same scopes for `days`; the old one ends within ROTATION, to leave time to replace it."""
    with transaction.atomic():
        made = api_token_create(
            name=token.name, scopes=token.scopes, actor=actor, source=token.source, team=token.team, owner=token.owner,
            expires_at=now + timedelta(days=days),
        )  # fmt: skip
        ends = min(filter(None, (token.expires_at, now + ROTATION)))
        ApiToken.objects.filter(pk=token.pk).update(expires_at=ends)
        _recent.clear()
    return made


def api_token_find(*, presented: str, now: datetime) -> ApiToken | None:
    """Return the valid token with this secret, or None. The secret has 256 random bits, so a plain hash protects it.

    A process queries the database again after RECENT_SECONDS: for that long another process may accept a revoked token.
    """
    token = _recently_seen(token_digest(presented)) or _ask(token_digest(presented))
    return token if token and (token.expires_at is None or now < token.expires_at) else None


def api_token_recent(*, presented: str, now: datetime) -> ApiToken | None:
    """Return the token if it was queried within RECENT_SECONDS, without a query; else None."""
    token = _recently_seen(token_digest(presented))
    return token if token and (token.expires_at is None or now < token.expires_at) else None


def api_token_is_listed(*, presented: str) -> bool:
    """Return True if the token exists; a process reads the list of all at most once in RECENT_SECONDS."""
    global _valid
    with _listing:
        if monotonic() - _valid[1] > RECENT_SECONDS:
            _valid = frozenset(_active().values_list("digest", flat=True)), monotonic()
        return token_digest(presented) in _valid[0]


def api_tokens_ending(now: datetime) -> QuerySet[ApiToken]:
    """Return tokens in use that end within two weeks or have just ended, by their end."""
    used = ApiToken.objects.filter(revoked_at=None, expires_at__lte=now + ENDS_SOON, last_used_at__gt=now - IN_USE)
    return used.order_by("expires_at", "pk")


def _active() -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(Q(owner=None) | Q(owner__is_active=True), revoked_at=None)


def _recently_seen(digest: str) -> ApiToken | None:
    token, seen = _recent.get(digest, (None, 0.0))
    return token if monotonic() - seen <= RECENT_SECONDS else None


def _ask(digest: str) -> ApiToken | None:
    token = _active().filter(digest=digest).select_related("team", "owner").first()
    if token is None:
        _recent.pop(digest, None)
    else:
        if len(_recent) >= MOST_RECENT:
            _recent.clear()
        _recent[digest] = token, monotonic()
    return token


def api_token_touch(*, token: ApiToken, now: datetime) -> None:
    """Store the last use, at most once a minute so that reports do not queue behind one row."""
    if token.last_used_at is None or now - token.last_used_at > TOUCH_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now


def token_digest(presented: str) -> str:
    """Return the stored hash of a secret."""
    return sha256(presented.encode()).hexdigest()
