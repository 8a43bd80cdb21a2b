"""The command blocks of the pages, and how each is tried."""

import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROJECT = Path(__file__).resolve().parents[1]
README, PRODUCTION, UPGRADING, AGENTS, CONTAINERS = (
    PROJECT / name
    for name in ("README.md", "docs/production.md", "docs/upgrading.md", "docs/agents.md", "docker/README.md")
)
INSTALL, INCIDENTS, SCALE, MONTH = OPERATIONS = tuple(
    PROJECT / "docs/operations" / name for name in ("install.md", "incidents.md", "scale.md", "month.md")
)
PAGES = (README, *OPERATIONS, PRODUCTION, UPGRADING, AGENTS, CONTAINERS)
ELSEWHERE = {"helm", "kubectl", "docker", "make", "cp", "mkdir"}
"""Programs whose commands tests/process/test_cluster_commands.py checks one by one: they need a cluster or containers."""
RUN_BY = {
    "pgbackrest --stanza=suanpan stanza-create": "tests/operations/test_point_in_time.py",
    "pgbackrest --stanza=suanpan --delta": "tests/operations/test_point_in_time.py",
    "python manage.py audit_verify --anchor 's3:": "tests/integration/test_audit_anchors.py",
    "python manage.py usage_seal --verify": "tests/integration/test_sealing.py",
    "python -m metering efficiency": "tests/prometheus/test_efficiency.py",
    "python -m metering backfill": "tests/prometheus/test_backfill.py",
    "python -m metering slurm --days": "tests/integration/test_slurm_head_node.py",
    "sacct --json": "tests/integration/test_slurm_head_node.py",
    "export TOKEN_STORE='clickhouse://": "tests/clickhouse/test_failures.py",
    "SLURM_TIME_FORMAT": "tests/integration/test_slurm_head_node.py",
}
"""How a block begins that needs a server of others, and the test that has one and runs the block from the page."""


class Block(NamedTuple):
    """A fenced block of commands."""

    page: Path
    line: int
    text: str

    @property
    def name(self) -> str:
        first = re.sub(r"\s*#.*|\\$", "", self.text.splitlines()[0]).strip()
        return f"{self.page.name}: {first}"[:80]

    @property
    def program(self) -> str:
        return words(commands(self.text)[0])[0]

    @property
    def is_run(self) -> bool:
        return self.program not in ELSEWHERE and not self.text.startswith(tuple(RUN_BY))


def blocks(page: Path, language: str = "sh") -> list[Block]:
    """Those of one language, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in re.finditer(r"(?ms)^ *```(.*?)\n(.*?)^ *```$", text) if match[1] == language]
    return [Block(page, text[: match.start()].count("\n") + 1, textwrap.dedent(match[2])) for match in found]


def of_page(page: Path, start: str) -> list[str]:
    """The commands of the one block that begins so."""
    (found,) = [block for block in blocks(page) if block.text.startswith(start)]
    return commands(found.text)


def filled(text: str, given: dict[str, str]) -> str:
    """With what a page leaves to its reader; each of it is there."""
    for written, own in given.items():
        assert written in text, written
        text = text.replace(written, own)
    return text


def inside(command: str) -> str | None:
    """What a command of kubectl or Compose runs in a container of the platform, as if it were run here; None: nothing."""
    found = re.match(r"kubectl .* deploy/suanpan-web -- /app/|docker compose .* exec (?:-T )?web ", command)
    if found:
        return command[found.end() :]
    found = re.match(r"(?s)docker compose .* run .*\bweb (?=manage )", command)
    return "docker/entrypoint.sh " + command[found.end() :] if found else None


def fences(page: Path) -> set[str]:
    """The languages of all its blocks."""
    marks = re.findall(r"(?m)^ *```(.*)$", page.read_text(encoding="utf-8"))
    return set(marks[::2])


def words(command: str) -> list[str]:
    """The words of a command, lines that go on joined, without its comment."""
    return shlex.split(re.sub(r"\\\n\s*", " ", command), comments=True)


def commands(text: str) -> list[str]:
    """The commands of a block, each with all of its lines."""
    found, begun = [], ""
    for line in text.splitlines(keepends=True):
        begun += line
        if _is_whole(begun):
            if begun.strip():
                found.append(begun.strip())
            begun = ""
    assert not begun, f"a command without an end: {begun}"
    return found


def manifests(command: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What a command gives kubectl on its standard input; the shell is real."""
    (tmp_path / "kubectl").write_text("#!/bin/sh\nexec cat\n")
    (tmp_path / "kubectl").chmod(0o755)
    script = f"PATH={shlex.quote(str(tmp_path))}:$PATH\n{command}\n"
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def _is_whole(text: str) -> bool:
    document = re.search(r"<<(\w+)\n", text)
    if document:
        return text.endswith(f"\n{document[1]}\n")
    if text.endswith("\\\n"):
        return False
    try:
        words(text)
    except ValueError:  # an open quotation
        return False
    return True
