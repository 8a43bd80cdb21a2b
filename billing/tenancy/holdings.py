"""Rights that each person and token holds now, and since when: for auditors."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.contrib.auth.models import User
from django.db.models import Max
from django.utils.translation import gettext_lazy as _

from billing.tenancy.access import teams_below
from billing.tenancy.models import ApiToken, AuditEntry, Membership, Team

ACCOUNT, SUPERUSER, ROLE, TOKEN = "account", "superuser", "role", "token"
HOLDING: Final = {ACCOUNT: _("Account"), SUPERUSER: _("Superuser: every right"), ROLE: _("Role"), TOKEN: _("API token")}


@dataclass(frozen=True, slots=True)
class Holding:
    """One thing that a person holds: the account itself, every right, a role or a token.

    person: None for a token of a gateway or an agent, which has no owner.
    name: code of the role, or name of the token; else "".
    team: the team or group that it is restricted to; None: all teams.
    teams: codes of the teams, without groups, that `team` stands for today.
    since: instant from which the person holds it; None if no audit entry has it, as after rows were loaded without triggers.
    """

    person: User | None
    kind: str
    name: str
    team: Team | None
    teams: tuple[str, ...]
    since: datetime | None
    origin: str = ""
    token: ApiToken | None = None


def holdings() -> list[Holding]:
    """Return what every person holds, by user name; tokens without an owner last. Revoked tokens are left out."""
    below = teams_below(Team.objects.values_list("pk", flat=True))
    memberships, tokens = dict[int, list[Membership]](), dict[int | None, list[ApiToken]]()
    for held in Membership.objects.select_related("team").order_by("role", "team__code", "origin"):
        memberships.setdefault(held.user_id, []).append(held)
    for token in ApiToken.objects.filter(revoked_at=None).select_related("team", "owner").order_by("name", "pk"):
        tokens.setdefault(token.owner_id, []).append(token)
    role_since = _last_written("tenancy_membership", (held.pk for each in memberships.values() for held in each))
    people = list(User.objects.order_by("username"))
    superuser_since = _last_written(
        "auth_user", (person.pk for person in people if person.is_superuser), detail__after__is_superuser=True
    )

    def of_token(person: User | None, token: ApiToken) -> Holding:
        teams = below[token.team_id] if token.team_id else ()
        return Holding(person, TOKEN, token.name, token.team, teams, token.created_at, token=token)

    found: list[Holding] = []
    for person in people:
        found.append(Holding(person, ACCOUNT, "", None, (), person.date_joined))
        if person.is_superuser:
            found.append(Holding(person, SUPERUSER, "", None, (), superuser_since.get(person.pk)))
        for held in memberships.get(person.pk, []):
            teams = below[held.team_id] if held.team_id else ()
            found.append(Holding(person, ROLE, held.role, held.team, teams, role_since.get(held.pk), held.origin))
        found += [of_token(person, token) for token in tokens.get(person.pk, [])]
    return found + [of_token(None, token) for token in tokens.get(None, [])]


def _last_written(table: str, keys: Iterable[int], **detail: bool) -> dict[int, datetime]:
    """Return by key the instant of the last insert or change of a row that the audit log has.

    detail: facts that the entry must have, such as the flag that was set.
    """
    prefix = f"{table} "
    # the prefix is the condition of a partial index
    written = AuditEntry.objects.filter(
        subject__startswith=prefix, subject__in=[f"{prefix}{key}" for key in keys],
        action__in=["row_insert", "row_update"], **detail,
    )  # fmt: skip
    last = written.order_by().values_list("subject").annotate(Max("at"))
    return {int(subject.removeprefix(prefix)): at for subject, at in last}
