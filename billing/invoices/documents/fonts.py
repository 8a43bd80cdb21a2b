"""The fonts of the documents: one packaged Chinese typeface and Typst's own, never those of the machine.

``manimgx-fonts-cjk`` carries Noto Sans CJK (SIL Open Font License 1.1) as one variable font with all weights. Fonts of
the system are ignored even where they are better: the same invoice must give the same bytes everywhere.
"""

from __future__ import annotations

import functools
from importlib import resources

import typst

FONT_PACKAGE = "manimgx_fonts_cjk"


@functools.cache
def packaged_fonts() -> typst.Fonts:
    """Fonts of the package and of Typst, found once a process (about 10 ms)."""
    return typst.Fonts(
        include_system_fonts=False,
        include_embedded_fonts=True,
        font_paths=[str(resources.files(FONT_PACKAGE))],
    )
