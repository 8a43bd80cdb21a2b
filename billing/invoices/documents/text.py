"""Strings for print: no invisible characters, no overflow, aligned figures."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from decimal import Decimal

MINUS = "\N{MINUS SIGN}"
LONGEST_UNBROKEN = 16
_BREAK_AFTER = re.compile(r"(?<=[-/_.:@|,;=+\s])")
_ACCENTED = re.compile("[\u0100-\u024f\u0370-\u03ff\u0400-\u04ff\u1e00-\u1eff]")
# Controls, direction overrides, private use, unassigned: none of them may hide or reorder what is charged.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})


def visible(value: str, undisplayable: Collection[str] = ()) -> str:
    """Replace invisible characters by their code points; tabs and line ends become a space.

    undisplayable: further characters to spell out, for which no packaged font has a glyph.

    >>> visible("a" + chr(0x202E) + "b" + chr(9) + "c")
    'a[U+202E]b c'
    """
    spaced = re.sub(r"[\t\r\n]+", " ", value)
    return "".join(
        f"[U+{ord(char):04X}]" if char in undisplayable or unicodedata.category(char) in _UNPRINTABLE else char
        for char in spaced
    )


def fragments(value: str) -> list[str]:
    """Split a long name into pieces between which it may break, first after separators, else every 16 characters.

    The pieces join to the same string: no hyphen and no invisible character gets into what a reader copies.

    >>> fragments("nvidia.com/mig-1g.10gb")
    ['nvidia.', 'com/', 'mig-', '1g.', '10gb']
    >>> fragments("NVIDIA-H800")
    ['NVIDIA-H800']
    """
    if len(value) <= LONGEST_UNBROKEN:
        return [value]
    pieces = (piece for piece in _BREAK_AFTER.split(value) if piece)
    return [
        piece[start : start + LONGEST_UNBROKEN] for piece in pieces for start in range(0, len(piece), LONGEST_UNBROKEN)
    ]


def accented(value: str) -> bool:
    """Return True if letters occur of alphabets that the main font covers only in part (`templates/invoice/theme.typ`).

    >>> accented("Żółć"), accented("Zuerich 算盘 é")
    (True, False)
    """
    return _ACCENTED.search(value) is not None


def figure(value: Decimal) -> str:
    """Format a number with thousands separators, a real minus sign and exactly the decimals of the document.

    >>> figure(Decimal("-1234567.50"))
    '−1,234,567.50'
    """
    return f"{value:,f}".replace("-", MINUS)
