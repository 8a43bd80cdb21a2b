"""Who adds up usage and looks up its owner or price: the walk, and the recount that checks it by another engine."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMS = {"gpu_time", "carried_time", "token_sums", "file_token_sums", "TokenEngine"}
"""What adds up stored usage, in `billing.usage`."""
LOOK_UPS = {
    "owner", "gpu_price", "token_price", "list_price", "gpu_line", "token_line", "rate_gpu", "rate_tokens", "used_line",
}  # fmt: skip
"""What says whose usage is, or what it costs."""
TABLES = (
    "usage_allocationrevision", "usage_gpuallocation", "token_event", "token_entry", "token_hour", "token_day",
    "token_usage_hour", "token_usage_day",
)  # fmt: skip


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "billing").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if "migrations" not in path.parts:
            yield name, ast.parse(path.read_text())


def names(tree: ast.Module) -> set[str]:
    """Everything that a module imports, names or asks an object for."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


def statements(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, those with values in them as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def adds_up(tree: ast.Module) -> bool:
    """Whether it calls a sum of usage, or has one of its own."""
    own = any("sum(" in text and any(table in text for table in TABLES) for text in statements(tree))
    return own or not SUMS.isdisjoint(names(tree))


def test_one_module_walks_from_usage_to_price_and_one_checks_it() -> None:
    found = {name for name, tree in modules() if adds_up(tree) and not LOOK_UPS.isdisjoint(names(tree))}
    assert found == {"billing.rating.walk", "billing.rating.recount"}


def test_a_copy_of_the_walk_would_be_found() -> None:
    """With sums and prices of the installation, or with SQL of its own."""
    calls = "from billing.usage.queries import gpu_time\nfor row in gpu_time(pieces): card.gpu_price(row.accelerator)"
    own = 'cursor.execute(f"SELECT sum(quantity) FROM usage_gpuallocation WHERE {x}")\nbook.owner(cluster, namespace, at)'
    for text in (calls, own):
        tree = ast.parse(text)
        assert adds_up(tree)
        assert not LOOK_UPS.isdisjoint(names(tree))


def test_only_the_reference_data_say_where_usage_is_cut() -> None:
    """Nobody else puts the changes of prices together with those of owners."""
    def cuts(tree: ast.Module) -> bool:
        return any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and ast.unparse(node).count(".changes()") > 1
            for node in ast.walk(tree)
        )  # fmt: skip

    assert {name for name, tree in modules() if cuts(tree)} == {"billing.rating.reference_data"}
