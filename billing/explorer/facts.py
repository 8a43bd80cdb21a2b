"""What is kept beside the sums of a month: whether they can still change, and what they leave out."""

import msgspec

from billing.explorer.models import MonthCube
from billing.rating.freshness import Unbilled


class CubeFacts(msgspec.Struct):
    """`preview`: the amounts can still change. `unrated`: why teams are in no sum. `unbilled`: usage that is in none."""

    preview: bool
    unrated: dict[str, str]
    unbilled: list[Unbilled]
    zone: str


def facts_of(cube: MonthCube) -> CubeFacts:
    return msgspec.msgpack.decode(cube.facts, type=CubeFacts)
