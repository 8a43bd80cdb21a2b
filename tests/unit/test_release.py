"""Everything that names the release names the same one."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import metering
from metering.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_is_of_this_release() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == metering.__version__


@pytest.mark.parametrize("chart", ["suanpan", "suanpan-agent"])
def test_a_chart_and_its_manifests_are_of_this_release(chart: str) -> None:
    described = yaml.safe_load((ROOT / "docker" / "charts" / chart / "Chart.yaml").read_text())
    assert (described["version"], described["appVersion"]) == (metering.__version__, metering.__version__)
    folder = ROOT / "docker" / "k8s" / chart
    (image,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == metering.__version__
    labels = re.findall(r'app\.kubernetes\.io/version: "(.*)"', (folder / "manifests.yaml").read_text())
    assert set(labels) == {metering.__version__}


def test_the_changelog_begins_with_this_release_and_its_upgrade_notes_are_there() -> None:
    (newest, *_) = re.findall(r"^## (\S+) - \d{4}-\d{2}-\d{2}$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == metering.__version__
    assert f"\n## {metering.__version__}\n" in (ROOT / "docs" / "upgrading.md").read_text()


def test_a_filled_database_of_this_release_is_kept_for_later_ones() -> None:
    assert (ROOT / "tests" / "upgrade" / "backups" / f"{metering.__version__}.dump").is_file()


@pytest.mark.parametrize("page", ["docker/README.md", "docs/agents.md", "docs/production.md", "docker/compose.yaml"])
def test_images_are_named_by_this_release(page: str) -> None:
    named = re.findall(r"suanpan(?:-agent|-backup)?:(\d+\.\d+\.\d+)", (ROOT / page).read_text())
    assert named
    assert set(named) == {metering.__version__}


def test_an_agent_says_its_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{metering.__version__}\n")
