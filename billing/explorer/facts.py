"""Facts stored with the sums of a month: finality and omissions."""

import msgspec

from billing.explorer.models import MonthCube
from billing.rating.freshness import Unbilled


class CubeFacts(msgspec.Struct):
    """Facts of a cube. `preview`: amounts can change. `unrated`: errors of teams, `unbilled`: usage, both in no sum."""

    preview: bool
    unrated: dict[str, str]
    unbilled: list[Unbilled]
    zone: str


def facts_of(cube: MonthCube) -> CubeFacts:
    return msgspec.msgpack.decode(cube.facts, type=CubeFacts)
