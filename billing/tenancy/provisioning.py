"""Accounts and groups pushed by the identity provider (SCIM): people join, change and leave without signing in.

An account belongs to one person of the provider, known by `external_id`, the identifier with which that person signs in.
Groups give roles by the same mapping as a sign-in. No token changes the account or roles of its own owner.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from allauth.account.adapter import get_adapter
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet

from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record
from billing.tenancy.models import ProvisionedAccount
from billing.tenancy.people import PeopleError, account_active_set
from billing.tenancy.roles import roles_of_groups
from metering.messages import Message


class ProvisioningError(PeopleError):
    """Error of an account or group that cannot be as the provider requests."""

    code = "provisioning"


class TakenError(ProvisioningError):
    """Error of a name or identifier that is already in use."""

    code = "provisioning_taken"


@dataclass(frozen=True)
class Person:
    """Person as the provider describes them; None for a missing field."""

    external_id: str | None = None
    user_name: str | None = None
    given_name: str | None = None
    family_name: str | None = None
    email: str | None = None
    active: bool | None = None


def accounts_provisioned() -> QuerySet[ProvisionedAccount]:
    """Return accounts that the provider manages, without deleted ones."""
    return ProvisionedAccount.objects.exclude(active=None).select_related("user").order_by("user_id")


def account_provision(*, person: Person, actor: str) -> ProvisionedAccount:
    """Create the account of a new person, or take over the one with which they have signed in.  Raises PeopleError."""
    if not person.external_id or not person.user_name:
        raise ProvisioningError(Message("userName and externalId are needed"))
    with transaction.atomic():
        known = ProvisionedAccount.objects.select_for_update().filter(external_id=person.external_id).first()
        if known is not None and known.active is not None:
            raise TakenError(Message("externalId %(id)s: is taken", id=repr(person.external_id)))
        _user_name_check(person.user_name, known)
        if known is None:
            user = _signed_in_as(person.external_id) or _made(person.external_id, person.user_name)
            known = ProvisionedAccount(user=user, external_id=person.external_id, active=True)
        _other_check(known.user, actor)
        known.user_name = person.user_name
        known.save()
        audit_record(
            actor=actor, action="account_provision", subject=known.user.get_username(),
            detail={"external_id": known.external_id, "user_name": known.user_name},
        )  # fmt: skip
        _change(known, person, actor, active=person.active is not False)
    return known


def account_change(*, user_id: int, person: Person, actor: str) -> ProvisionedAccount:
    """Apply changed fields of the provider; an account that goes inactive loses sessions and tokens.  Raises PeopleError."""
    with transaction.atomic():
        known = _locked(user_id, actor)
        if person.external_id not in (None, known.external_id):
            raise ProvisioningError(Message("externalId names the person for ever: delete the account and make another"))
        if person.user_name is not None:
            _user_name_check(person.user_name, known)
        _change(known, person, actor, active=person.active)
    return known


def account_deprovision(*, user_id: int, actor: str) -> None:
    """Switch off the account of a person whom the provider deleted; history keeps it.  Raises PeopleError."""
    with transaction.atomic():
        known = _locked(user_id, actor)
        for group in known.user.groups.all():
            known.user.groups.remove(group)
        roles_of_groups(user=known.user, groups=[], actor=actor)
        if known.user.is_active:
            account_active_set(user=known.user, active=False, actor=actor)
        known.active = None
        known.save(update_fields=["active"])


def group_put(
    *, actor: str, group_id: int | None = None, name: str | None = None, members: Iterable[int] | None = None,
    added: Iterable[int] = (), removed: Iterable[int] = (),
) -> Group:  # fmt: skip
    """Create a group or change its name and members, by ids of accounts; roles are updated.  Raises PeopleError."""
    with transaction.atomic():
        group = Group.objects.select_for_update().get(pk=group_id) if group_id else Group()
        if name is not None and Group.objects.filter(name=name).exclude(pk=group.pk).exists():
            raise TakenError(Message("group %(name)s: is taken", name=repr(name)))
        before = _members(group)
        after = ((before if members is None else set(members)) | set(added)) - set(removed)
        renamed = name is not None and name != group.name
        group.name = group.name if name is None else name
        group.save()
        for user in _people(after ^ before, actor):
            (group.user_set.add if user.pk in after else group.user_set.remove)(user)
        audit_record(
            actor=actor, action="provider_group_put", subject=group.name,
            detail={"added": len(after - before), "removed": len(before - after)},
        )  # fmt: skip
        _roles_follow(_people(after | before if renamed else after ^ before, actor), actor)
    return group


def group_delete(*, group_id: int, actor: str) -> None:
    """Delete a group; its members lose the roles that it gave.  Raises PeopleError."""
    with transaction.atomic():
        group = Group.objects.select_for_update().get(pk=group_id)
        people = _people(_members(group), actor)
        audit_record(actor=actor, action="provider_group_delete", subject=group.name)
        group.delete()
        _roles_follow(people, actor)


def _members(group: Group) -> set[int]:
    return set(group.user_set.values_list("pk", flat=True)) if group.pk else set()


def _people(ids: set[int], actor: str) -> list[User]:
    """Return accounts that the provider manages; raise ProvisioningError for others and for the actor's own."""
    found = list(User.objects.filter(pk__in=ids, provisioned__active__isnull=False).order_by("pk"))
    if unknown := sorted(ids - {user.pk for user in found}):
        raise ProvisioningError(Message("member %(id)s: there is no such account", id=unknown[0]))
    for user in found:
        _other_check(user, actor)
    return found


def _roles_follow(people: list[User], actor: str) -> None:
    for user in people:
        roles_of_groups(user=user, groups=user.groups.values_list("name", flat=True), actor=actor)


def _change(known: ProvisionedAccount, person: Person, actor: str, *, active: bool | None) -> None:
    """Apply changed fields only, so that the provider does not switch on again an account that was switched off here."""
    user = known.user
    wanted = {"first_name": person.given_name, "last_name": person.family_name, "email": person.email}
    changed = [name for name, value in wanted.items() if value is not None and getattr(user, name) != value]
    for name in changed:
        setattr(user, name, wanted[name])
    user.save(update_fields=changed)
    if person.user_name not in (None, known.user_name):
        known.user_name = str(person.user_name)
        changed.append("user_name")
    if changed:
        audit_record(actor=actor, action="account_change", subject=user.get_username(), detail={"changed": changed})
    if active is not None and active != known.active:
        known.active = active
        if user.is_active != active:
            account_active_set(user=user, active=active, actor=actor)
    known.save()


def _locked(user_id: int, actor: str) -> ProvisionedAccount:
    known = accounts_provisioned().select_for_update().filter(user_id=user_id).first()
    if known is None:
        raise ProvisionedAccount.DoesNotExist
    _other_check(known.user, actor)
    return known


def _other_check(user: User, actor: str) -> None:
    if same_person(user.get_username(), actor):
        raise ProvisioningError(Message("%(name)s: somebody else changes your own account and roles", name=actor))


def _user_name_check(user_name: str, known: ProvisionedAccount | None) -> None:
    others = accounts_provisioned().exclude(pk=known.pk if known else None)
    if others.filter(user_name__iexact=user_name).exists():
        raise TakenError(Message("userName %(name)s: is taken", name=repr(user_name)))


def _signed_in_as(external_id: str) -> User | None:
    account = SocialAccount.objects.filter(provider=settings.OIDC_PROVIDER_ID, uid=external_id).first()
    return User.objects.select_for_update().get(pk=account.user_id) if account else None


def _made(external_id: str, user_name: str) -> User:
    """Create an account without a password, for the person who signs in at the provider as `external_id`."""
    user = User(username=get_adapter().generate_unique_username([user_name]))
    user.set_unusable_password()
    user.save()
    SocialAccount.objects.create(user=user, provider=settings.OIDC_PROVIDER_ID, uid=external_id)
    return user
