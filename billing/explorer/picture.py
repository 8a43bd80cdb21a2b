"""Chart of an answer as a PNG, for messages: stacked bars with a scale, days and names, drawn by Typst from an SVG."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from xml.sax.saxutils import escape

import typst

from billing.explorer.labels import step_text, title_of
from billing.explorer.selectors import Explored
from billing.invoices.documents.pdf import packaged_fonts

COLOURS: Final = (
    "#2f5b7a", "#c08a2e", "#3f8f74", "#a3506f", "#d0763f", "#6a64b0", "#8a6a4c", "#3d97ab", "#94922f", "#c4574a",
)  # fmt: skip
OTHER: Final = "#b4aea2"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 900, 340, 90, 50, 30, 22
TICKS: Final = 4
LABELS: Final = 8
FONT: Final = "Noto Sans CJK SC"


def chart_png(found: Explored, called: Mapping[str, str], title: str) -> bytes:
    source = (
        f'#set page(width: auto, height: auto, margin: 8pt)\n#set text(font: "{FONT}")\n'
        '#image(bytes(sys.inputs.svg), format: "svg", width: 675pt)'
    ).encode()
    png = typst.compile(
        source, format="png", ppi=144, sys_inputs={"svg": chart_svg(found, called, title)}, ignore_system_fonts=True,
        font_paths=packaged_fonts(),
    )  # fmt: skip
    if not isinstance(png, bytes):
        raise TypeError(f"typst gave {type(png).__name__}, expected one picture")
    return png


def chart_svg(found: Explored, called: Mapping[str, str], title: str) -> str:
    named = [(title_of(found.query, group.names, called), group) for group in found.charted if group.total]
    parts = [(name or title, group.bars, colour) for (name, group), colour in zip(named, COLOURS, strict=False)]
    if any(found.other.bars):
        parts.append(("…", found.other.bars, OTHER))
    bottom = TOP + HEIGHT
    rows = -(-len(parts) // 3)
    body = [_text(LEFT, 26, title, size=17, weight="bold"), *_scale(parts, bottom), *_bars(parts, bottom)]
    body += _days(found, bottom) + _legend(parts, bottom + BOTTOM + LEGEND)
    height = bottom + BOTTOM + LEGEND * (rows + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="{FONT}"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(body)}</svg>'
    )


Part = tuple[str, Sequence[Decimal], str]


def _top(parts: Sequence[Part]) -> Decimal:
    """Return the end of the scale: a round number at or above every bar."""
    columns = zip(*(bars for _, bars, _ in parts), strict=True)
    sums = [sum((max(bar, Decimal(0)) for bar in bars), Decimal(0)) for bars in columns]
    most = max(sums, default=Decimal(0)) or Decimal(1)
    unit = Decimal(1).scaleb(most.adjusted())
    return next(unit * step for step in (1, 2, 4, 6, 8, 10) if unit * step >= most)


def _scale(parts: Sequence[Part], bottom: int) -> list[str]:
    top, found = _top(parts), []
    for tick in range(TICKS + 1):
        y = bottom - HEIGHT * tick // TICKS
        found.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - 10}" y2="{y}" stroke="#e5e1d8"/>')
        found.append(_text(LEFT - 8, y + 4, f"{top * tick / TICKS:,f}".rstrip("0").rstrip(".") or "0", anchor="end"))
    return found


def _bars(parts: Sequence[Part], bottom: int) -> list[str]:
    top, number = _top(parts), max((len(bars) for _, bars, _ in parts), default=0)
    room = (WIDTH - 10 - LEFT) / max(number, 1)
    found = []
    for place in range(number):
        y = float(bottom)
        for _, bars, colour in parts:
            height = float(max(bars[place], Decimal(0)) / top * HEIGHT)  # places on a picture, no figures
            y -= height
            found.append(
                f'<rect x="{LEFT + room * (place + 0.1):.2f}" y="{y:.2f}" width="{room * 0.8:.2f}" height="{height:.2f}" '
                f'fill="{colour}"/>'
            )
    return found


def _days(found: Explored, bottom: int) -> list[str]:
    room, each = (WIDTH - 10 - LEFT) / max(len(found.steps), 1), -(-len(found.steps) // LABELS)
    return [
        _text(int(LEFT + room * (place + 0.5)), bottom + 18, step_text(step, found.today), anchor="middle")
        for place, step in enumerate(found.steps)
        if each and place % each == 0
    ]


def _legend(parts: Sequence[Part], y: int) -> list[str]:
    found = []
    for place, (name, _, colour) in enumerate(parts):
        x, line = LEFT + place % 3 * 270, y + place // 3 * LEGEND
        found.append(f'<rect x="{x}" y="{line - 10}" width="11" height="11" rx="2" fill="{colour}"/>')
        found.append(_text(x + 17, line, name if len(name) <= 36 else f"{name[:35]}…"))
    return found


def _text(x: int, y: int, text: str, *, size: int = 12, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="#1b2027">'
        f"{escape(text)}</text>"
    )
