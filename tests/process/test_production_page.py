"""What the pages ask somebody to run with Helm is run: rendered with the same options, without a cluster."""

import re
from pathlib import Path

import pytest
import yaml

from tests.charts import PROJECT, helm
from tests.documented import OPERATIONS, PRODUCTION, blocks, commands, words

PAGE = (PROJECT / "docs/production.md").read_text(encoding="utf-8")
PAGES = [*sorted((PROJECT / "docs").glob("*.md")), *OPERATIONS, PROJECT / "docker/README.md"]
CLUSTER_ONLY = ("--wait", "--timeout", "--reuse-values")
AT_MOST = 5
"""Commands from an empty namespace to the first scraped metric."""


def first_commands() -> list[str]:
    """Those of the first block of the page."""
    return commands(blocks(PRODUCTION)[0].text)


def helm_commands() -> list[str]:
    """Those that render a chart; tests/process/test_charts_installed.py rolls back."""
    every = [text for page in PAGES for block in blocks(page) for text in commands(block.text)]
    return [text for text in every if text.startswith(("helm install ", "helm upgrade "))]


def template_of(command: str, values: Path) -> list[str]:
    """The same with `helm template`; a values file of the reader's own is one of ours."""
    given = words(command)[2:]
    kept, skip = [], False
    for word in given:
        if not skip and word not in CLUSTER_ONLY:
            kept.append(str(values) if word == "suanpan.yaml" else word)
        skip = word == "--timeout"
    if "--reuse-values" in given:  # what was given when it was installed
        kept += ["--set", "cluster=hq-1", "--set", "endpoint=https://billing.example.com"]
    return ["template", *kept]


def test_at_most_five_commands_lead_from_an_empty_namespace_to_the_first_metric() -> None:
    programs = [words(command)[0] for command in first_commands()]
    assert programs == ["kubectl", "helm", "kubectl", "kubectl"]
    assert len(programs) <= AT_MOST
    assert "kind: Namespace" in first_commands()[0]
    assert "suanpan_database_up" in first_commands()[-1]
    assert "## Four commands" in PAGE


@pytest.mark.parametrize("command", helm_commands(), ids=lambda command: " ".join(command.split()[:3]))
def test_a_helm_command_of_a_page_renders(command: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```", PAGE)
    values.write_text(yaml.safe_dump({key: value for block in blocks for key, value in yaml.safe_load(block).items()}))
    done = helm(*template_of(command, values))
    assert (done.returncode, done.stderr) == (0, "")
    assert "kind: Deployment" in done.stdout or "kind: StatefulSet" in done.stdout


def test_every_page_that_names_a_chart_is_among_them() -> None:
    assert len(helm_commands()) == 5


def test_the_secret_of_the_page_has_the_keys_that_the_chart_reads() -> None:
    objects = first_commands()[0]
    made = set(re.findall(r"\b([A-Z_]+): \"", objects))
    (command,) = [command for command in first_commands() if command.startswith("helm")]
    text = helm(*template_of(command, Path("unused"))).stdout
    read = set(re.findall(r'secretKeyRef: \{"key":"(\w+)","name":"suanpan"\}', text))
    assert read == made == {"SECRET_KEY", "BROKER_PASSWORD"}


def test_the_page_counts_the_connections_of_web_as_the_values_do() -> None:
    values = yaml.safe_load((PROJECT / "docker/charts/suanpan/values.yaml").read_text(encoding="utf-8"))["web"]
    assert values["autoscaling"]["maxReplicas"] * values["workers"] * (values["threads"] + 4) == 240
    assert "connections, 240 as it comes" in PAGE
