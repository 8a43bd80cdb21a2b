"""PURE: jobs of a report of sacct, in either form.

Text before the report, such as a login banner, is left out and noted.
"""

import re
from dataclasses import replace
from typing import Final
from zoneinfo import ZoneInfo

from metering.slurm.jobs import Report, ReportError
from metering.slurm.sacct_json import read_json
from metering.slurm.sacct_text import is_header, read_text

JSON_START: Final = re.compile(r'^[ \t]*\{\s*["}]', re.MULTILINE)


def read_report(content: bytes, zone: ZoneInfo | None = None, delimiter: str = "|") -> Report:
    """Read the jobs of a report as JSON or as a table.  Raises ReportError where there is no complete report."""
    text, notes = _decoded(content)
    start = _start(text, delimiter)
    if before := text[:start].strip():
        notes = (*notes, f"text before the report was left out; it begins with {_first_line(before)!r}")
    if text[start : start + 1] in ("{", "["):
        report = read_json(text[start:])
    else:
        report = read_text(text[start:], zone, delimiter, first_line=1 + text.count("\n", 0, start))
    return replace(report, notes=notes)


def _decoded(content: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode the text; a wrong byte in a name that a user chose becomes a note, so that other jobs are still read."""
    try:
        return content.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        return content.decode("utf-8-sig", "replace"), (f"not UTF-8 at byte {error.start}; wrong bytes are read as \ufffd",)


def _start(text: str, delimiter: str) -> int:
    """Return where the report begins.  Raises ReportError."""
    stripped = len(text) - len(text.lstrip())
    if text[stripped : stripped + 1] in ("[", ""):
        return stripped
    place = 0
    for line in text.split("\n"):
        if is_header(line, delimiter):
            return place
        if JSON_START.match(text, place):
            return text.index("{", place)
        place += len(line) + 1
    begins = _first_line(text[stripped:])
    problem = f"neither what `sacct --json` prints nor a table with its header; it begins with {begins!r}"
    raise ReportError("", "document", problem)


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:60]
