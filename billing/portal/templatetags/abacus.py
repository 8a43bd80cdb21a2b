"""Suanpan of two beads over five, set to an amount: one rod a digit, the last two are cents. As on the invoice."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django import template

register = template.Library()
PITCH, UNIT, UPPER, LOWER, BEAM = 16, 7, 3, 6, 3
FEWEST_RODS = 9


@dataclass(frozen=True, slots=True)
class Bead:
    """Centre of a bead; `active`: it counts."""

    x: int
    y: float
    active: bool


@register.inclusion_tag("portal/parts/abacus.html")
def abacus(amount: Decimal | None) -> dict[str, Any]:
    """Draw `amount`; the drawing adds no information to the figure beside it."""
    digits = str(int(abs(amount or Decimal(0)) * 100)).rjust(FEWEST_RODS, "0")
    rods = [PITCH * index + PITCH // 2 + 4 for index in range(len(digits))]
    beads = [bead for x, digit in zip(rods, digits, strict=True) for bead in _rod(x, int(digit))]
    beam = UPPER * UNIT + 3
    return {
        "rods": rods, "beads": beads, "beam": beam, "beam_height": BEAM, "width": PITCH * len(digits) + 8,
        "height": (UPPER + LOWER) * UNIT + BEAM + 6, "inner": (UPPER + LOWER) * UNIT + BEAM + 3,
    }  # fmt: skip


def _rod(x: int, digit: int) -> list[Bead]:
    five, ones = divmod(digit, 5)
    top = 3 + UNIT / 2
    low = top + UPPER * UNIT + BEAM
    upper = [Bead(x, top, False), Bead(x, top + UNIT * (2 if five else 1), bool(five))]
    return upper + [Bead(x, low + UNIT * (slot if slot < ones else slot + 1), slot < ones) for slot in range(5)]
