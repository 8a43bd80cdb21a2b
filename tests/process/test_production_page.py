"""What the pages ask somebody to run with Helm is run: rendered with the same options, without a cluster."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.charts import PROJECT, helm

PAGE = (PROJECT / "docs/production.md").read_text(encoding="utf-8")
PAGES = [*sorted((PROJECT / "docs").glob("*.md")), PROJECT / "docker/README.md"]
CLUSTER_ONLY = ("--wait", "--timeout", "--reuse-values")


def commands(text: str) -> list[str]:
    """The commands of every shell block, lines that go on joined."""
    blocks = re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", text)
    return [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines() if line.strip()]


def helm_commands() -> list[str]:
    return [line for page in PAGES for line in commands(page.read_text(encoding="utf-8")) if line.startswith("helm ")]


def template_of(command: str, values: Path) -> list[str]:
    """The same with `helm template`; a values file of the reader's own is one of ours."""
    words = shlex.split(command)[2:]
    kept, skip = [], False
    for word in words:
        if not skip and word not in CLUSTER_ONLY:
            kept.append(str(values) if word == "suanpan.yaml" else word)
        skip = word == "--timeout"
    if "--reuse-values" in words:  # what was given when it was installed
        kept += ["--set", "cluster=hq-1", "--set", "endpoint=https://billing.example.com"]
    return ["template", *kept]


def test_there_are_six_commands_from_an_empty_namespace_to_the_first_metric() -> None:
    section = PAGE[PAGE.index("## Six commands") : PAGE.index("The last one answers")]
    words = [command.split()[0] for command in commands(section)]
    assert words == ["kubectl", "kubectl", "kubectl", "helm", "kubectl", "kubectl"]
    assert "create namespace" in commands(section)[0]
    assert "suanpan_database_up" in commands(section)[-1]


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
    section = PAGE[PAGE.index("## Six commands") : PAGE.index("The last one answers")]
    made = set(re.findall(r"--from-literal=([A-Z_]+)=", section))
    (command,) = [command for command in commands(section) if command.startswith("helm")]
    text = helm(*template_of(command, Path("unused"))).stdout
    read = set(re.findall(r'secretKeyRef: \{"key":"(\w+)","name":"suanpan"\}', text))
    assert read == made == {"SECRET_KEY", "BROKER_PASSWORD"}


def test_the_page_counts_the_connections_of_web_as_the_values_do() -> None:
    values = yaml.safe_load((PROJECT / "docker/charts/suanpan/values.yaml").read_text(encoding="utf-8"))["web"]
    assert values["autoscaling"]["maxReplicas"] * values["workers"] * (values["threads"] + 4) == 240
    assert "connections, 240 as it comes" in PAGE
