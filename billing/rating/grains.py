"""PURE: grains, which distinguish the parts of a line, and the place of each part."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Grain(StrEnum):
    """Level of detail at which a line is split into parts."""

    LINE = "line"
    DAY = "day"
    HOUR = "hour"
    JOB = "job"
    POD = "pod"
    WORKLOAD_DAY = "workload_day"


class Place(NamedTuple):
    """Position of a part of a line: time, job, site, queue, pool; dimensions that the grain does not distinguish are empty.

    `start`: of a UTC hour, or of the part of a day between two cuts; the part ends with it unless `until` is set: the unused
    hours of a commitment have no hour of their own. `resource`: a job, or source and model of an endpoint. `tier`: the
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
