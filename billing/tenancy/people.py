"""Accounts: created and switched off by people with that right, never by themselves, each with an audit entry."""

import secrets
from collections.abc import Iterable

from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext, override

from billing.tenancy.access import RIGHTS, Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import FirstPassword, Membership, Team
from billing.tenancy.open_sessions import sessions_end
from billing.tenancy.roles import require_other, role_grant, role_revoke
from billing.tenancy.tokens import api_token_revoke
from metering.messages import Message, UserError


class PeopleError(UserError, ValueError):
    """Error of an account or role that cannot be as requested."""

    code = "people"


def account_create(*, username: str, full_name: str, email: str, actor: str, invite: bool = False) -> tuple[User, str]:
    """Create a local account; return it with its first password, which cannot be read again.

    With `invite` its mail address gets a link by which the person chooses a password that no one else knows: the returned
    password is empty, and if the mail fails there is no account.  Raises PeopleError.
    """
    with transaction.atomic():
        if User.objects.filter(username__iexact=username).exists():
            raise PeopleError(Message("user name %(name)s: is taken", name=repr(username)))
        user = User(username=username, email=email, first_name=full_name)
        try:
            user.full_clean(exclude=["password"])
        except ValidationError as error:
            field, (why, *_) = next(iter(error.message_dict.items()))
            refusals = {
                "email": Message("mail address %(name)s: %(why)s", name=repr(email), why=why),
                "first_name": Message("full name %(name)s: %(why)s", name=repr(full_name), why=why),
            }
            told = Message("user name %(name)s: %(why)s", name=repr(username), why=why)
            raise PeopleError(refusals.get(field, told)) from error
        password = "" if invite else secrets.token_urlsafe(12)
        user.set_password(password or None)
        user.save()
        if password:
            first_password_note(user)
        audit_record(actor=actor, action="account_create", subject=username, detail={"email": email, "invited": invite})
        # inside the transaction: without the mail the account is rolled back
        if invite:
            _invite(user)
    return user, password


def first_password_note(user: User) -> None:
    """Require the owner of an account to choose a password at the next sign-in: another person knows this one."""
    FirstPassword.objects.get_or_create(user=user)


def first_password_forget(user: User) -> None:
    """Record that the owner of an account chose its password."""
    FirstPassword.objects.filter(user=user).delete()


def has_first_password(user: User) -> bool:
    """Return True while the owner of an account has not chosen its password."""
    return FirstPassword.objects.filter(user=user).exists()


def somebody_manages_people() -> bool:
    """Return True if an active account may create others; then no first account is created."""
    managers = Q(is_superuser=True) | Q(memberships__role=Membership.Role.ADMIN)
    return User.objects.filter(managers, is_active=True).exists()


def first_account_create(*, username: str, full_name: str, email: str, actor: str) -> str:
    """Create a platform admin (no superuser) if no account manages people yet; return its first password, else "".

    Raises PeopleError.
    """
    if somebody_manages_people():
        return ""
    with transaction.atomic():
        user, password = account_create(username=username, full_name=full_name, email=email, actor=actor)
        role_grant(user=user, role=Membership.Role.ADMIN, team=None, actor=actor)
    return password


def has_left(address: str) -> bool:
    """Return True if all accounts with a mail address are switched off."""
    return bool(addresses_left([address]))


def addresses_left(addresses: Iterable[str]) -> set[str]:
    """Return those of the addresses whose accounts are all switched off."""
    asked = [address for address in addresses if address]
    accounts = User.objects.annotate(address=Lower("email")).filter(address__in=[address.lower() for address in asked])
    active = dict[str, bool]()
    for address, is_active in accounts.values_list("address", "is_active"):
        active[address] = active.get(address, False) or is_active
    return {address for address in asked if not active.get(address.lower(), True)}


def _invite(user: User) -> None:
    """Send a one-time link by which a person without a password chooses one."""
    key = f"{user_pk_to_url_str(user)}-{default_token_generator.make_token(user)}"
    link = settings.PORTAL_URL.rstrip("/") + f"/account/password/reset/key/{key}/"
    with override(settings.LANGUAGE_CODE):
        subject = gettext("Set up your Suanpan account")
        text = gettext(
            "%(name)s is your user name for Suanpan. Choose a password:\n\n%(link)s\n\n"
            "The link works once and expires in %(days)s days."
        )
    days = settings.PASSWORD_RESET_TIMEOUT // 86_400
    try:
        send_mail(subject, text % {"name": user.username, "link": link, "days": days}, None, [user.email])
    except OSError as error:
        raise PeopleError(Message("the invitation could not be sent: %(why)s", why=str(error))) from error


def account_switch(*, user_id: int, active: bool, actor: str) -> User:
    """Switch an account off, with its sessions and tokens, or on again.  Raises PeopleError, RoleError."""
    with transaction.atomic():
        user = _account(user_id, lock=True)
        require_other(user, actor)
        if user.is_active != active:
            account_active_set(user=user, active=active, actor=actor)
    return user


def account_active_set(*, user: User, active: bool, actor: str) -> None:
    """Switch an account on, or off: its sessions end and its tokens are revoked, also after it is switched on again."""
    user.is_active = active
    user.save(update_fields=["is_active"])
    if active:
        audit_record(actor=actor, action="account_enable", subject=user.get_username())
        return
    audit_record(actor=actor, action="account_disable", subject=user.get_username())
    sessions_end(lambda account, _: account == user.pk)
    for token in user.api_tokens.filter(revoked_at=None):
        api_token_revoke(token=token, actor=actor, now=timezone.now())


def account_role_grant(*, user_id: int, role: str, team: Team | None, actor: str) -> None:
    """Grant another person a role.  Raises PeopleError, RoleError."""
    role_grant(user=_account(user_id), role=role, team=team, actor=actor)


def account_role_revoke(*, membership_id: int, actor: str) -> None:
    """Revoke another person's role; a role from the identity provider must be revoked there.

    Raises PeopleError, RoleError.
    """
    held = Membership.objects.select_related("team").filter(pk=membership_id).first()
    if held is None:
        return
    if held.origin == Membership.Origin.PROVIDER:
        raise PeopleError(Message("the identity provider gives the role %(role)s: take it away there", role=held.role))
    role_revoke(user=_account(held.user_id), role=held.role, team=held.team, actor=actor)


def conflicting_duties(roles: list[str]) -> list[Right]:
    """Return rights that conflict with approval: with these roles one person could both make and approve.

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
