"""PURE: what distinguishes the parts of a line, and where such a part is."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Grain(StrEnum):
    """What distinguishes the parts of a line."""

    LINE = "line"
    DAY = "day"
    HOUR = "hour"
    JOB = "job"
    POD = "pod"
    WORKLOAD_DAY = "workload_day"


class Place(NamedTuple):
    """Where in time and of what a part of a line is; what the grain does not distinguish is empty.

    `start`: of a UTC hour, or of the part of a day that nothing cuts; it ends with that, unless `until` says otherwise: what
    a commitment leaves unused has no hour of its own. `resource`: a job, or source and model of an endpoint. `tier`: the
    priority class.
    """

    start: datetime | None = None
    resource: str = ""
    site: str = ""
    until: datetime | None = None
    queue: str = ""
    allocation: int = 0
    pool: str = ""
    tier: str = ""
