"""What the product imports is declared: whoever removes a package that seems unused breaks nothing in silence."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("billing", "metering", "pricing")
IN_A_GATEWAY = {"litellm", "fastapi"}
"""Installed where the callback runs, by its gateway."""
ON_A_CLUSTER = {"pyspark", "py4j"}
"""Installed from the group `cluster` by who recounts a sealed month with Spark."""


def imported() -> set[str]:
    found: set[str] = set()
    for path in (path for package in OURS for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(OURS) - IN_A_GATEWAY - ON_A_CLUSTER


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {normalised(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in lines}
    distributions = packages_distributions()
    undeclared = {name for name in imported() if not {normalised(each) for each in distributions.get(name, ())} & declared}
    assert undeclared == set()


def normalised(distribution: str) -> str:
    """Source: packaging.python.org, name normalization."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
