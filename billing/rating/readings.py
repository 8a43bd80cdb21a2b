"""Reading: under which names teams may have used anything, so that the usage of some teams is read and of no other."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from django.db import connection

from billing.rating.reference_data import ReferenceData
from billing.usage.store.dimensions import dimension_consumers


@dataclass(frozen=True, slots=True)
class Reading:
    """Teams, the (cluster, namespace) and the numbers of the token dimensions that may be theirs at some time.

    A name may have had other owners too: the reader asks for the owner of the time. `kinds`: of lines; None for all.
    """

    teams: Collection[str]
    namespaces: Collection[tuple[str, str]] = ()
    dimensions: Collection[int] = ()
    kinds: frozenset[str] | None = None


@dataclass(frozen=True)
class NamesByTeam:
    """All names that usage was reported under, by the teams that ever own them."""

    reference_data: ReferenceData

    def namespaces(self, teams: Collection[str]) -> list[tuple[str, str]]:
        """(cluster, namespace) that may be of one of the teams, each once."""
        return sorted({name for team in teams for name in self._namespaces.get(team, ())})

    def dimensions(self, teams: Collection[str]) -> list[int]:
        """Numbers of token dimensions that may be of one of the teams, each once."""
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
