"""Access rights: roles, the rights they give, and the one check that every page and endpoint uses.

A role is held for all teams or for one team; held for a group it includes every team that is below it now, with all of its
months: a lead who has lost a team does not go on reading its documents. Sums of groups follow the time instead
(`billing.budgets.group_times`). No other setting gives rights:
`is_staff` only admits to Django's admin, a superuser has every right.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final
from unicodedata import normalize

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import connection
from django.db.models import QuerySet

from billing.tenancy.models import Membership, Team


class Right(StrEnum):
    """Rights of a person. The first three are held for teams, the others for the whole installation."""

    READ = "read"  # usage, charges and documents
    BUDGET = "budget"  # thresholds and recipients of budgets; held for all teams: new budgets
    DISPUTE = "dispute"  # open disputes on lines
    READ_COSTS = "read_costs"  # what was paid for hardware, power and hosting
    READ_AUDIT = "read_audit"  # who changed what
    CLOSE = "close"  # close and issue, waive exceptions, correct, decide disputes, export
    APPROVE = "approve"  # approve what somebody else made: invoices, credit notes, prices, write-offs
    EDIT_PRICES = "edit_prices"  # draft price versions and policies
    OPERATE = "operate"  # ownership, agents and sources, quarantine
    MANAGE_PEOPLE = "manage_people"  # accounts, roles, API tokens


Role = Membership.Role
OF_TEAMS: Final = frozenset({Right.READ, Right.BUDGET, Right.DISPUTE})
RIGHTS: Final[Mapping[str, frozenset[Right]]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.LEAD: OF_TEAMS,
    Role.FINANCE: OF_TEAMS | {Right.READ_COSTS, Right.READ_AUDIT, Right.CLOSE, Right.EDIT_PRICES},
    Role.APPROVER: frozenset({Right.READ, Right.READ_COSTS, Right.READ_AUDIT, Right.APPROVE}),
    Role.ADMIN: frozenset(
        {Right.READ, Right.BUDGET, Right.READ_COSTS, Right.EDIT_PRICES, Right.OPERATE, Right.MANAGE_PEOPLE}
    ),
    Role.AUDITOR: frozenset({Right.READ, Right.READ_COSTS, Right.READ_AUDIT}),
}
BELOW = """WITH RECURSIVE below AS (
    SELECT id AS root, id FROM tenancy_team WHERE id = ANY(%s)
    UNION SELECT below.root, team.id FROM tenancy_team team JOIN below ON team.parent_id = below.id
) SELECT root, id FROM below"""


def same_person(one: str, other: str) -> bool:
    """Return True if two actors are one person, as the database decides (`suanpan_same_person`, used by its guards).

    One person: names that differ in case, width or blanks, accounts with one mail address, a token and its owner.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT suanpan_same_person(%s, %s)", [one, other])
        return bool(cursor.fetchone()[0])


def same_persons(one: str, others: Iterable[str]) -> set[str]:
    """Return those of `others` who are the same person as `one`, in one statement."""
    names = [name for name in {*others} if name]
    if not names:
        return set()
    with connection.cursor() as cursor:
        cursor.execute("SELECT other FROM unnest(%s::text[]) other WHERE suanpan_same_person(%s, other)", [names, one])
        return {other for (other,) in cursor.fetchall()}


def account_named(name: str) -> str:
    """Return the account's name for any spelling of it; a name without an account is returned stripped."""
    plain = " ".join(normalize("NFKC", name).split())
    # an exact name wins: folded, it could be another account too
    if User.objects.filter(username=name).exists():
        return name
    alike = User.objects.filter(username__iexact=plain).order_by("username").values_list("username", flat=True)
    return next((username for username in alike if same_person(username, name)), name.strip())


@dataclass(frozen=True)
class Access:
    """Rights of one person: everywhere, and by primary key of a team."""

    everywhere: frozenset[Right] = frozenset()
    by_team: Mapping[int, frozenset[Right]] = field(default_factory=dict)

    def may(self, right: Right, team: Team | None = None) -> bool:
        """Return True if the right is held everywhere or, with a team given, for that team."""
        return right in self.everywhere or (team is not None and right in self.by_team.get(team.pk, frozenset()))

    def somewhere(self, right: Right) -> bool:
        """Return True if the right is held for at least one team."""
        return right in self.everywhere or any(right in rights for rights in self.by_team.values())

    def teams(self, right: Right = Right.READ) -> QuerySet[Team]:
        """Return the teams, without groups, for which the right is held."""
        teams = Team.objects.filter(is_group=False)
        if right in self.everywhere:
            return teams
        return teams.filter(pk__in=[team for team, rights in self.by_team.items() if right in rights])

    @property
    def budget_teams(self) -> QuerySet[Team]:
        """Return the teams and groups whose budgets the person may change."""
        teams = Team.objects.all()
        if Right.BUDGET in self.everywhere:
            return teams
        return teams.filter(pk__in=[team for team, rights in self.by_team.items() if Right.BUDGET in rights])

    @cached_property
    def granted(self) -> dict[str, bool]:
        """Return for each right, by name, True if it is held everywhere; for templates."""
        return {right.value: right in self.everywhere for right in Right}


def access_of(user: AbstractBaseUser | AnonymousUser | Any) -> Access:
    """Return the rights of a person, read once per request: they are cached on the request's user object."""
    known: Access | None = getattr(user, "_suanpan_access", None)
    if known is None:
        known = _read(user) if isinstance(user, User) and user.is_active else Access()
        holder: Any = user
        holder._suanpan_access = known
    return known


def team_and_below(team_id: int) -> QuerySet[Team]:
    with connection.cursor() as cursor:
        cursor.execute(BELOW, [[team_id]])
        return Team.objects.filter(pk__in=[team for _, team in cursor.fetchall()])


def teams_below(roots: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return by team or group the codes of the invoiced teams that it stands for today; itself if it is no group."""
    found: dict[int, list[str]] = {root: [] for root in roots}
    teams = dict(Team.objects.filter(is_group=False).values_list("pk", "code"))
    with connection.cursor() as cursor:
        cursor.execute(BELOW, [list(found)])
        for root, team in cursor.fetchall():
            if team in teams:
                found[root].append(teams[team])
    return {root: tuple(sorted(codes)) for root, codes in found.items()}


def teams_visible_to(user: AbstractBaseUser | AnonymousUser | Any) -> QuerySet[Team]:
    """Return the teams whose usage and documents a person may see."""
    return access_of(user).teams(Right.READ)


def _read(user: User) -> Access:
    if user.is_superuser:
        return Access(frozenset(Right))
    everywhere: set[Right] = set()
    of_roots: dict[int, set[Right]] = {}
    for role, team in Membership.objects.filter(user=user).values_list("role", "team_id"):
        (everywhere if team is None else of_roots.setdefault(team, set())).update(RIGHTS[role])
    by_team: dict[int, set[Right]] = {}
    # a role of a group reaches its teams, but gives rights of teams only
    if of_roots:
        with connection.cursor() as cursor:
            cursor.execute(BELOW, [list(of_roots)])
            for root, team in cursor.fetchall():
                by_team.setdefault(team, set()).update(of_roots[root] & OF_TEAMS)
    return Access(frozenset(everywhere), {team: frozenset(rights) for team, rights in by_team.items()})
