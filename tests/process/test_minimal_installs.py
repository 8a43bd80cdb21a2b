"""Each command starts with the packages that docs/agents.md names for it, and with nothing else."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from metering.__main__ import COMMANDS
from tests.cli import PROJECT

PAGE = (PROJECT / "docs/agents.md").read_text("utf-8")
TABLE = re.findall(r"^\| `(\w+)` \| ((?:`[\w.-]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
PACKAGES = {command: re.findall(r"`([\w.-]+)`", packages) for command, packages in TABLE}
MAPPING = "time: ts\nconsumer: user\nmodel: model\nusage: usage\n"
USAGE = '{"prompt_tokens": 10, "completion_tokens": 3}'
LINE = f'{{"ts": "2026-10-05T10:00:00Z", "user": "nlp", "model": "qwen", "usage": {USAGE}}}\n'


def installed(folder: Path, packages: list[str]) -> Path:
    """A folder with these packages and what they require: what a fresh environment would have."""
    site, waiting, done = folder / "site", list(packages), set()
    site.mkdir()
    while waiting:
        found = distribution(waiting.pop())
        if found.name in done:
            continue
        done.add(found.name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(found.locate_file(top)))
        required = [Requirement(text) for text in found.requires or ()]
        waiting += [need.name for need in required if need.marker is None or need.marker.evaluate({"extra": ""})]
    (site / "metering").symlink_to(PROJECT / "metering")
    return site


def metering(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m metering` with the standard library, that folder and nothing else."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-S", "-m", "metering", *arguments],
        cwd=site.parent, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_table_has_every_command() -> None:
    assert sorted(PACKAGES) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_starts_with_its_packages(tmp_path: Path, command: str) -> None:
    done = metering(installed(tmp_path, PACKAGES[command]), command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: python -m metering {command}" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_no_package_in_the_table_is_too_much(tmp_path: Path, command: str) -> None:
    for number, package in enumerate(PACKAGES[command]):
        others = [other for other in PACKAGES[command] if other != package]
        (tmp_path / str(number)).mkdir()
        done = metering(installed(tmp_path / str(number), others), command, "--help")
        assert "ModuleNotFoundError" in done.stderr, f"{command} starts without {package}"


def test_without_any_package_the_commands_are_listed(tmp_path: Path) -> None:
    done = metering(installed(tmp_path, []), "--help")
    assert (done.returncode, [name for name in COMMANDS if name not in done.stdout]) == (0, [])


def test_the_readers_of_gateways_work_with_three_packages(tmp_path: Path) -> None:
    site = installed(tmp_path, ["msgspec", "httpx", "pyyaml"])
    for name, text in {"mapping.yaml": MAPPING, "a.log": LINE, "token": "t"}.items():
        (tmp_path / name).write_text(text)
    mapped = ("--format", "json", "--mapping", "mapping.yaml")
    read = metering(site, "tokens", *mapped, "--source", "gw", "--out", "u.csv", "a.log")
    assert (read.returncode, read.stderr) == (0, "1 records\n")
    assert (tmp_path / "u.csv").read_text().splitlines()[1].endswith(",2026-10-05T10:00:00Z,nlp,qwen,10,0,0,3,0")
    sending = ("--endpoint", "http://127.0.0.1:9", "--token-file", "token", "--once")
    sent = metering(site, "outbox", "--state", "outbox", *sending, "--deliver-seconds", "1")
    assert (sent.returncode, sent.stderr) == (0, "")
    nowhere = ("--url", "pod-1=http://127.0.0.1:9/metrics")
    engines = metering(site, "engines", *nowhere, "--source", "vllm", "--state", "engines", *sending)
    assert (engines.returncode, "Traceback" in engines.stderr) == (3, False)


def test_the_callback_needs_msgspec_and_httpx(tmp_path: Path) -> None:
    """LiteLLM itself needs httpx."""
    site = installed(tmp_path, ["msgspec", "httpx"])
    program = "import metering.gateways.litellm_callback as callback; print(callback.Hooks.__name__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("Hooks\n", "")
