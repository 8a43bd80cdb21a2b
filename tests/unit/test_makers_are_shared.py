"""Test modules share what they make through `tests.factories` and its like: none imports another, none a private name."""

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
IMPORT = re.compile(r"^ *(?:from +([\w.]+) +)?import +(?:\(([^)]*)\)|([\w., ]+))", re.MULTILINE)
ALIAS = re.compile(r"\bas +\w+|#.*")
OURS = {"billing", "metering", "pricing", "tests"}


def test_no_test_module_imports_another_and_nobody_a_private_name() -> None:
    found = {path.relative_to(TESTS): set(wrong_imports(path.read_text(encoding="utf-8"))) for path in TESTS.rglob("*.py")}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_every_way_to_import_one_is_seen() -> None:
    text = (
        "import tests.unit.test_a\nfrom tests.unit.test_b import SHEET\nfrom tests.unit import test_c\n"
        "from .test_d import x\nfrom litellm.hooks import _Logger\n"
        "from billing.rating.walk import _cut\nfrom tests import factories\nfrom tests.factories.prices import SHEET\n"
        "def late() -> None:\n    from tests.unit.test_e import (  # late\n        y,\n        z as _z,\n    )\n"
    )
    assert set(wrong_imports(text)) == {
        "tests.unit.test_a", "tests.unit.test_b.SHEET", "tests.unit.test_c", ".test_d.x", "billing.rating.walk._cut",
        "tests.unit.test_e.y", "tests.unit.test_e.z",
    }  # fmt: skip


def wrong_imports(text: str) -> Iterator[str]:
    """Names of test modules, of what they define, and private names of our own."""
    for name in imported(text):
        parts = name.split(".")
        of_a_test = parts[0] in ("tests", "") and any(part.startswith("test_") for part in parts)
        if of_a_test or (parts[0] in OURS and parts[-1].startswith("_")):
            yield name


def imported(text: str) -> Iterator[str]:
    """Dotted names behind every `import`, of a line or in brackets; parsing all tests would take ten times as long."""
    for source, in_brackets, in_a_line in IMPORT.findall(text):
        for name in re.findall(r"[\w.]+", ALIAS.sub("", in_brackets or in_a_line)):
            yield f"{source}.{name}" if source else name
