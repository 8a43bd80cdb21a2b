"""Estimate of row heights: True for rows that surely fit one line.

Typst lays out a row of unknown height twice, once to find the height. Most rows are one line high, which their characters
prove; otherwise Typst measures the row. Widths are those of Noto Sans CJK at the weights that rows have, rounded up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).resolve().parents[3] / "templates" / "invoice"
_columns = json.loads((TEMPLATES / "columns.json").read_text())
_POINTS_IN_MM: Final = 72 / 25.4
_SIZE: Final[float] = _columns["size_pt"]
_TAG_SIZE: Final[float] = _columns["tag_size_pt"]
_TAG_GAP: Final[float] = _columns["tag_gap_pt"]
COLUMNS: Final = [width * _POINTS_IN_MM - 2 * _columns["inset_pt"] for width in _columns["widths_mm"]]
"""Space for text in each column of a row, in points."""
WIDTHS: Final = {
    character: width
    for width, characters in (
        (0.30, " |ij',.:;l"), (0.36, "I!f()[]{}-"), (0.42, "/\\tr"), (0.50, "s*z?"), (0.56, 'c"xyvJYL–'),
        (0.58, "_Fe#$+0123456789<=>^~−akg"), (0.64, "VXEZST`ouhAnbdpq"), (0.68, "CPRKB"), (0.76, "DG&UNHOQ"),
        (0.90, "wMW"), (0.98, "%m@"),
    )
    for character in characters
}  # fmt: skip
"""Largest width of each character, in em."""
_IDEOGRAPH: Final = re.compile("[\u4e00-\u9fff]")
_MEETING: Final = re.compile("(?<=[\u4e00-\u9fff])(?=[^\u4e00-\u9fff ])|(?<=[^\u4e00-\u9fff ])(?=[\u4e00-\u9fff])")
_BETWEEN_SCRIPTS: Final = 0.25
"""Space that Typst inserts between an ideograph and a letter, in em."""


def width_of(text: str) -> float | None:
    """Return an upper bound of the text's width on one line, in em; None if unknown.

    >>> width_of("H800"), width_of("卡"), width_of("8卡"), width_of("Ω")
    (2.5, 1.0, 1.83, None)
    """
    letters, ideographs = _IDEOGRAPH.subn("", text)
    try:
        return ideographs + sum(map(WIDTHS.__getitem__, letters)) + _BETWEEN_SCRIPTS * len(_MEETING.findall(text))
    except KeyError:
        return None


def is_one_line(texts: Sequence[str], tag: str = "") -> bool:
    """Return True if each text surely fits its column; `tag` follows the second."""
    widths = [width_of(text) for text in (*texts, tag)]
    # a text of unknown width is never assumed to fit
    if None in widths:
        return False
    *taken, behind = (width or 0.0 for width in widths)
    points = [width * _SIZE for width in taken]
    if tag:
        points[1] += _TAG_GAP + behind * _TAG_SIZE
    return all(width <= space for width, space in zip(points, COLUMNS, strict=True))
