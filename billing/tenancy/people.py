"""Accounts: made and switched off by people with that right, never by themselves, each with an entry in the audit log."""

import secrets

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from billing.tenancy.access import RIGHTS, Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Membership, Team
from billing.tenancy.open_sessions import sessions_end
from billing.tenancy.roles import require_other, role_grant, role_revoke
from billing.tenancy.tokens import api_token_revoke
from metering.messages import Message, UserError


class PeopleError(UserError, ValueError):
    """An account or role that cannot be as asked."""

    code = "people"


def account_create(*, username: str, full_name: str, email: str, actor: str) -> tuple[User, str]:
    """Make a local account; returns it with its first password, which cannot be read again.  Raises PeopleError."""
    with transaction.atomic():
        if User.objects.filter(username__iexact=username).exists():
            raise PeopleError(Message("user name %(name)s: is taken", name=repr(username)))
        user = User(username=username, email=email, first_name=full_name[:150])
        try:
            user.full_clean(exclude=["password"])
        except ValidationError as error:
            raise PeopleError(Message("user name %(name)s: %(why)s", name=repr(username), why=error.messages[0])) from error
        password = secrets.token_urlsafe(12)
        user.set_password(password)
        user.save()
        audit_record(actor=actor, action="account_create", subject=username, detail={"email": email})
    return user, password


def account_switch(*, user_id: int, active: bool, actor: str) -> User:
    """Switch an account off, with its sessions and tokens, or on again.  Raises PeopleError, RoleError."""
    with transaction.atomic():
        user = _account(user_id, lock=True)
        require_other(user, actor)
        if user.is_active != active:
            account_active_set(user=user, active=active, actor=actor)
    return user


def account_active_set(*, user: User, active: bool, actor: str) -> None:
    """Switch an account on, or off: its sessions end and its tokens are revoked, and neither comes back with it."""
    user.is_active = active
    user.save(update_fields=["is_active"])
    if active:
        audit_record(actor=actor, action="account_enable", subject=user.get_username())
        return
    audit_record(actor=actor, action="account_disable", subject=user.get_username())
    sessions_end(lambda session: session[SESSION_KEY] == str(user.pk))
    for token in user.api_tokens.filter(revoked_at=None):
        api_token_revoke(token=token, actor=actor, now=timezone.now())


def account_role_grant(*, user_id: int, role: str, team: Team | None, actor: str) -> None:
    """Give somebody else a role.  Raises PeopleError, RoleError."""
    role_grant(user=_account(user_id), role=role, team=team, actor=actor)


def account_role_revoke(*, membership_id: int, actor: str) -> None:
    """Take a role from somebody else; one that the identity provider gives is taken away there.

    Raises PeopleError, RoleError.
    """
    held = Membership.objects.select_related("team").filter(pk=membership_id).first()
    if held is None:
        return
    if held.origin == Membership.Origin.PROVIDER:
        raise PeopleError(Message("the identity provider gives the role %(role)s: take it away there", role=held.role))
    role_revoke(user=_account(held.user_id), role=held.role, team=held.team, actor=actor)


def conflicting_duties(roles: list[str]) -> list[Right]:
    """What somebody with these roles could both make and approve: with another person's help only, but no second duty.

    >>> [right.value for right in conflicting_duties(["finance", "approver"])], conflicting_duties(["finance", "auditor"])
    (['close', 'edit_prices'], [])
    """
    rights = frozenset().union(*(RIGHTS[Membership.Role(role)] for role in roles))
    return [right for right in (Right.CLOSE, Right.EDIT_PRICES) if right in rights] if Right.APPROVE in rights else []


def _account(user_id: int, *, lock: bool = False) -> User:
    users = User.objects.select_for_update() if lock else User.objects
    user = users.filter(pk=user_id).first()
    if user is None:
        raise PeopleError(Message("account %(id)s: there is none", id=user_id))
    return user
