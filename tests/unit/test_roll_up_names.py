"""Roll-ups are read where they are made: no page and no door names them, so that they can change their shape alone."""

import re
from pathlib import Path

import billing

ROLL_UP = re.compile(r"\btoken_(hour|day)(_delta)?\b")
READERS = (
    "portal", "api", "budgets", "closing", "exports", "corrections", "invoices", "invoicing", "rating", "tenancy", "runtime",
)  # fmt: skip


def test_only_the_room_of_usage_names_the_roll_ups() -> None:
    root = Path(billing.__file__).parent
    naming = [
        str(path.relative_to(root)) for room in READERS for path in (root / room).rglob("*.py")
        if "migrations" not in path.parts and ROLL_UP.search(path.read_text("utf-8"))
    ]  # fmt: skip
    assert naming == []
    assert ROLL_UP.search((root / "usage" / "selectors.py").read_text("utf-8"))
