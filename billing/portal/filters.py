"""Filters of a board in its address, and the lines that they keep."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self, TypeVar

from django.http import QueryDict

from billing.invoices.line_rollups import Charged

Line = TypeVar("Line", bound=Charged)


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters by exact name; an empty one keeps every line. A line without the filtered field does not match.

    An accelerator excludes slices with a price of their own: these have their own names, as in the split and the explorer.
    Workloads and queues are not on a line: for them the lines of devices are kept, to be shared out over their jobs.
    """

    team: str = ""
    site: str = ""
    namespace: str = ""
    accelerator: str = ""
    model: str = ""
    consumer: str = ""
    workload: str = ""
    queue: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> Self:
        return cls(**{item.name: query.get(item.name, "").strip() for item in fields(cls)})

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """Return the filters that are set, by name."""
        return [(item.name, value) for item in fields(self) if (value := getattr(self, item.name))]

    @property
    def of_jobs(self) -> bool:
        """Return True if jobs are filtered: tokens have none."""
        return bool(self.workload or self.queue)

    def keeps(self, line: Charged) -> bool:
        key = line.key
        return (
            self.team in ("", key.team)
            and self.site in ("", key.cluster)
            and self.namespace in ("", key.namespace)
            and self.consumer in ("", key.consumer)
            and self.accelerator in ("", key.device)
            and self.model in ("", key.model)
            and not (key.counts_tokens and self.of_jobs)
        )

    def keeps_job(self, job: str, queue: str) -> bool:
        return self.workload in ("", job) and self.queue in ("", queue)

    def kept(self, lines: Iterable[Line]) -> list[Line]:
        return [line for line in lines if self.keeps(line)] if self.chosen else list(lines)
