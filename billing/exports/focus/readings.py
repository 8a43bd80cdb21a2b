"""Reading: under which names teams may have used anything, so that the hours of some teams are read and of no other."""

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass

from django.db import connection

from billing.rating.reference_data import ReferenceData


@dataclass(frozen=True, slots=True)
class Reading:
    """Teams, the (cluster, namespace) and the numbers of the token dimensions that may be theirs at some time.

    A name may have had other owners too: whoever reads asks for the owner of the time.
    """

    teams: Set[str]
    namespaces: Sequence[tuple[str, str]]
    dimensions: Sequence[int]


class NamesByTeam:
    """All names that usage was reported under, by the teams that ever own them."""

    def __init__(self, reference_data: ReferenceData) -> None:
        self._namespaces: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._dimensions: dict[str, list[int]] = defaultdict(list)
        with connection.cursor() as cursor:
            cursor.execute("SELECT DISTINCT cluster, namespace FROM usage_gpuallocation ORDER BY 1, 2")
            for cluster, namespace in cursor.fetchall():
                for team in reference_data.namespaces.teams(cluster, namespace):
                    self._namespaces[team].append((cluster, namespace))
            cursor.execute("SELECT id, source, consumer FROM token_dimension ORDER BY 1")
            for number, source, consumer in cursor.fetchall():
                for team in reference_data.consumers.teams(source, consumer):
                    self._dimensions[team].append(number)

    def namespaces(self, teams: Set[str]) -> list[tuple[str, str]]:
        """(cluster, namespace) that may be of one of the teams, each once."""
        return sorted({name for team in teams for name in self._namespaces.get(team, ())})

    def dimensions(self, teams: Set[str]) -> list[int]:
        """Numbers of token dimensions that may be of one of the teams, each once."""
        return sorted({number for team in teams for number in self._dimensions.get(team, ())})
