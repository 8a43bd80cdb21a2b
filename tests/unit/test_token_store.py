"""One package reads and writes the tables of token records: what it does not offer, nobody asks of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(
    r"\btoken_(entry|event|hour|day|usage_hour|usage_day|hour_delta|dimension|detail|tag_set|tag_value|shard|open_batch)\b"
)
STORE = "billing.usage.store"
ROLES = "billing.tenancy.database_roles"
"""It says who may do what to each table."""


def texts(path: Path) -> Iterator[str]:
    """Every string of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.value


def test_only_the_token_store_names_the_tables_of_token_records() -> None:
    found = set[str]()
    for path in sorted((ROOT / "billing").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if "migrations" not in path.parts and any(map(TABLE.search, texts(path))):
            found.add(name)
    assert {name for name in found if not name.startswith(STORE)} == {ROLES}
    ours = {name.removeprefix(f"{STORE}.") for name in found}
    assert ours > {"sums", "records", "hours", "proofs", "dimensions", "sharded"}
