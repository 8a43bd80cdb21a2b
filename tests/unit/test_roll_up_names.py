"""Roll-ups are read where they are made: no page and no endpoint names them, so that they can change their shape alone."""

import re
from pathlib import Path

import billing

ROLL_UP = re.compile(r"\btoken_(hour|day)(_delta)?\b")
READERS = (
    "portal", "api", "budgets", "explorer", "closing", "exports", "corrections", "invoices", "rating", "tenancy", "runtime",
)  # fmt: skip


def test_only_usage_and_the_rights_of_the_database_name_the_roll_ups() -> None:
    root = Path(billing.__file__).parent
    naming = [
        str(path.relative_to(root)) for room in READERS for path in (root / room).rglob("*.py")
        if "migrations" not in path.parts and path.name != "database_roles.py" and ROLL_UP.search(path.read_text("utf-8"))
    ]  # fmt: skip
    assert naming == []
    assert ROLL_UP.search((root / "usage" / "selectors.py").read_text("utf-8"))
