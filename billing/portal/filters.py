"""What of a month a board is about: the filters in its address, and which lines they keep."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from django.http import QueryDict

from billing.portal.statements import StatementLine


@dataclass(frozen=True, slots=True)
class Filters:
    """Exact names; an empty one asks nothing. What a filter asks for and a line does not have, does not match."""

    team: str = ""
    site: str = ""
    namespace: str = ""
    accelerator: str = ""
    model: str = ""
    consumer: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> Self:
        """The filters of an address."""
        return cls(**{item.name: query.get(item.name, "").strip() for item in fields(cls)})

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """The filters that ask something, by name."""
        return [(item.name, value) for item in fields(self) if (value := getattr(self, item.name))]

    def keeps(self, line: StatementLine) -> bool:
        """Whether the line is asked for."""
        key = line.key
        return (
            self.team in ("", key.team)
            and self.site in ("", key.cluster)
            and self.namespace in ("", key.namespace)
            and self.consumer in ("", key.consumer)
            and (not self.accelerator or (key.kind != "tokens" and self.accelerator in (key.accelerator, key.sku)))
            and (not self.model or (key.kind == "tokens" and self.model == key.sku))
        )

    def kept(self, lines: Iterable[StatementLine]) -> list[StatementLine]:
        """The lines that are asked for."""
        return [line for line in lines if self.keeps(line)]
