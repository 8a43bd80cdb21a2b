"""Usage filter by team: the names under which teams may have usage, so that no other team's usage is read."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from django.db import connection

from billing.rating.reference_data import ReferenceData
from billing.usage.store.dimensions import dimension_consumers


@dataclass(frozen=True, slots=True)
class Reading:
    """Teams, with the (cluster, namespace) pairs and token dimension numbers that they may own at some time.

    A name may have had other owners too: the reader looks up the owner of the time. `kinds`: of lines; None for all.
    """

    teams: Collection[str]
    namespaces: Collection[tuple[str, str]] = ()
    dimensions: Collection[int] = ()
    kinds: frozenset[str] | None = None


@dataclass(frozen=True)
class NamesByTeam:
    """Index of all names that usage was reported under, by the teams that own them at any time."""

    reference_data: ReferenceData

    def namespaces(self, teams: Collection[str]) -> list[tuple[str, str]]:
        """Return each (cluster, namespace) that one of the teams may own, once."""
        return sorted({name for team in teams for name in self._namespaces.get(team, ())})

    def dimensions(self, teams: Collection[str]) -> list[int]:
        """Return each token dimension number that one of the teams may own, once."""
        return sorted({number for team in teams for number in self._dimensions.get(team, ())})

    @cached_property
    def _namespaces(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        with connection.cursor() as cursor:
            cursor.execute("SELECT DISTINCT cluster, namespace FROM usage_gpuallocation ORDER BY 1, 2")
            for cluster, namespace in cursor.fetchall():
                for team in self.reference_data.namespaces.teams(cluster, namespace):
                    found[team].append((cluster, namespace))
        return found

    @cached_property
    def _dimensions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for number, source, consumer in dimension_consumers():
            for team in self.reference_data.consumers.teams(source, consumer):
                found[team].append(number)
        return found
