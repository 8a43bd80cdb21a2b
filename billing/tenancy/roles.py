"""Roles of people: granted and revoked, with an entry in the audit log."""

import logging
from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Membership, Team
from metering.messages import Message, UserError

log = logging.getLogger(__name__)
OF_A_TEAM = frozenset({Membership.Role.VIEWER, Membership.Role.LEAD})


class RoleError(UserError, ValueError):
    """Error of a role that cannot be held as requested."""

    code = "role"


def role_grant(*, user: User, role: str, team: Team | None, actor: str) -> bool:
    """Grant another person a role for a team, a group, or (None) for everything; return True if it is new.

    Raises RoleError.
    """
    require_other(user, actor)
    _check(role, team)
    _, made = Membership.objects.get_or_create(user=user, role=role, team=team, origin=Membership.Origin.LOCAL)
    if made:
        audit_record(actor=actor, action="role_grant", subject=user.get_username(), detail=_granted(role, team))
    return made


def role_revoke(*, user: User, role: str, team: Team | None, actor: str) -> bool:
    """Revoke another person's role; return True if it was held.  Raises RoleError."""
    require_other(user, actor)
    held = Membership.objects.filter(user=user, role=role, team=team, origin=Membership.Origin.LOCAL)
    gone, _ = held.delete()
    if gone:
        audit_record(actor=actor, action="role_revoke", subject=user.get_username(), detail=_granted(role, team))
    return bool(gone)


def roles_of_groups(*, user: User, groups: Iterable[str], actor: str) -> None:
    """Grant the roles of these provider groups, by OIDC_ROLES, and revoke those of all other groups."""
    wanted = {role for group in groups for role in settings.OIDC_ROLES.get(group, [])}
    known = set(Team.objects.filter(code__in=[team for _, team in wanted if team]).values_list("code", flat=True))
    for role, team in sorted(wanted, key=str):
        if team and team not in known:
            log.error("OIDC_ROLES gives %s for team %r, which does not exist; %s goes without it", role, team, user)
    with transaction.atomic():
        roles_from_provider(user=user, roles={role for role in wanted if role[1] is None or role[1] in known}, actor=actor)


def roles_from_provider(*, user: User, roles: set[tuple[str, str | None]], actor: str) -> bool:
    """Set the roles from the identity provider to exactly these (role, team code or None); return True if any changed.

    Roles granted here stay.  Raises RoleError for a role or team that does not exist.
    """
    teams = {team.code: team for team in Team.objects.filter(code__in=[code for _, code in roles if code])}
    wanted = set()
    for role, code in roles:
        if code is not None and code not in teams:
            raise RoleError(Message("team %(code)s: there is no such team", code=repr(code)))
        team = teams[code] if code else None
        _check(role, team)
        wanted.add((role, team.pk if team else None))
    held = Membership.objects.filter(user=user, origin=Membership.Origin.PROVIDER)
    now_held = set(held.values_list("role", "team_id"))
    for role, team_id in now_held - wanted:
        held.filter(role=role, team_id=team_id).delete()
    Membership.objects.bulk_create(
        Membership(user=user, role=role, team_id=team_id, origin=Membership.Origin.PROVIDER)
        for role, team_id in sorted(wanted - now_held, key=str)
    )
    if now_held == wanted:
        return False
    names = sorted(f"{role} of {code}" if code else role for role, code in roles)
    audit_record(actor=actor, action="roles_from_provider", subject=user.get_username(), detail={"roles": names})
    return True


def require_other(user: User, actor: str) -> None:
    """Raise RoleError if a person would change their own account or roles."""
    if same_person(user.get_username(), actor):
        raise RoleError(Message("%(name)s: somebody else changes your own account and roles", name=actor))


def _check(role: str, team: Team | None) -> None:
    if role not in Membership.Role.values:
        known = ", ".join(Membership.Role.values)
        raise RoleError(Message("role %(role)s: choose from %(roles)s", role=repr(role), roles=known))
    if team is not None and role not in OF_A_TEAM:
        raise RoleError(Message("role %(role)s is held for all teams: leave the team out", role=repr(role)))


def _granted(role: str, team: Team | None) -> dict[str, str | None]:
    return {"role": role, "team": team.code if team else None}
