"""What is tested here needs no other process and no server, so the whole folder runs while somebody waits for it."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ELSEWHERE = {"http.server", "multiprocessing", "psutil", "socket", "socketserver", "subprocess", "tests.charts", "tests.cli"}
"""What starts processes or listens."""
CALLS = {"os.fork", "os.kill", "os._exit"}
MODULES = sorted(path.name for path in HERE.glob("test_*.py"))


def what_it_starts(text: str) -> set[str]:
    """The modules and calls of a test that start or end something."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & ELSEWHERE
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)} & ELSEWHERE
        elif isinstance(node, ast.Attribute):
            found |= {ast.unparse(node)} & CALLS
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_test_of_one_rule_starts_nothing(module: str) -> None:
    assert what_it_starts((HERE / module).read_text(encoding="utf-8")) == set()


def test_what_starts_something_is_found() -> None:
    text = "import subprocess\nfrom http.server import HTTPServer\nfrom tests import cli\nimport os\nos.kill(1, 9)\n"
    assert what_it_starts(text) == {"subprocess", "http.server", "tests.cli", "os.kill"}
