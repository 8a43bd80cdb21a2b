"""The chart of the agents, the example beside it, and the kustomize bases that both charts render."""

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from metering.__main__ import parser
from tests.charts import CHARTS, HARDENED, PROJECT, containers, environment, named, objects


def agent(name: str, kind: str = "Deployment", values: str = "everything") -> Any:
    return named(objects("suanpan-agent", values), kind, name)["spec"]["template"]["spec"]


def test_agents_are_given_options_that_they_take() -> None:
    taken = {}
    for spec in (agent("gpu-agent", "StatefulSet"), agent("efficiency-agent"), agent("engine-agent")):
        arguments = spec["containers"][0]["args"]
        taken[arguments[0]] = vars(parser([arguments[0]]).parse_args(arguments))
    assert taken["gpu"]["lease"] == "billing/gpu-agent"
    assert taken["gpu"]["pod_label"] == ["team"]
    assert taken["gpu"]["owner"] == [(("Sweep", "batch.example.com"), "batch.example.com/v1alpha1/sweeps")]
    assert taken["efficiency"]["follow"] is True
    assert (taken["engines"]["source"], taken["engines"]["selector"]) == ("vllm-hq", 'job="vllm"')
    assert {options["endpoint"] for options in taken.values()} == {"https://billing.example.com"}


def test_an_owner_comes_with_the_right_to_get_it() -> None:
    role = named(objects("suanpan-agent", "everything"), "ClusterRole", "billing-gpu-agent")
    assert {"apiGroups": ["batch.example.com"], "resources": ["sweeps"], "verbs": ["get"]} in role["rules"]
    plain = named(objects("suanpan-agent", "minimal"), "ClusterRole", "billing-gpu-agent")
    assert [rule for rule in role["rules"] if rule not in plain["rules"]] == [role["rules"][-1]]


@pytest.mark.parametrize(
    ("values", "agent_name", "file", "volume"),
    [
        ("everything", "efficiency-agent", "/etc/suanpan-ca/bundle.pem", {"configMap": {"name": "company-ca"}}),
        ("engines-only", "engine-agent", "/etc/suanpan-ca/ca.crt", {"secret": {"secretName": "company-ca"}}),
    ],
)
def test_a_private_ca_is_mounted_where_the_client_is_pointed(values: str, agent_name: str, file: str, volume: Any) -> None:
    spec = agent(agent_name, values=values)
    (container,) = spec["containers"]
    assert environment(container)["SSL_CERT_FILE"] == file
    assert {"name": "ca", "mountPath": "/etc/suanpan-ca", "readOnly": True} in container["volumeMounts"]
    assert {"name": "ca", **volume} in spec["volumes"]


def test_the_token_is_a_file_whatever_its_key_is_called() -> None:
    (volume,) = [volume for volume in agent("gpu-agent", "StatefulSet")["volumes"] if volume["name"] == "token"]
    assert volume["secret"] == {"secretName": "tokens", "items": [{"key": "hq-1", "path": "token"}]}


def test_the_sidecar_of_the_example_is_one_that_kubernetes_and_the_reader_take() -> None:
    example = yaml.safe_load((CHARTS / "suanpan-agent/examples/token-reader.yaml").read_text(encoding="utf-8"))
    kubernetes_validate.validate(example, "1.31", strict=True)
    (reader,) = example["spec"]["template"]["spec"]["initContainers"]
    assert reader["restartPolicy"] == "Always"
    options = vars(parser(["tokens"]).parse_args(reader["args"]))
    assert (options["format"], options["follow"]) == ("envoy", True)
    assert all(container["securityContext"] == HARDENED for container in containers(example["spec"]["template"]))


# --- the kustomize bases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", ["suanpan", "suanpan-agent"])
def test_the_kustomize_base_is_what_the_chart_renders_now(chart: str, tmp_path: Path) -> None:
    """If this fails, `make manifests` and commit what it wrote."""
    for name in ("suanpan", "suanpan-agent"):
        (tmp_path / name).mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--silent", "--old-file=.venv/.dev", "manifests", f"MANIFESTS={tmp_path}"]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    kept = PROJECT / "docker/k8s" / chart / "manifests.yaml"
    assert (tmp_path / chart / "manifests.yaml").read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")


@pytest.mark.parametrize("chart", ["suanpan", "suanpan-agent"])
def test_a_base_lists_its_files_and_a_restricted_namespace(chart: str) -> None:
    folder = PROJECT / "docker/k8s" / chart
    base = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert {path.name for path in folder.iterdir()} == {*base["resources"], "kustomization.yaml", "values.yaml"}
    space = yaml.safe_load((folder / "namespace.yaml").read_text(encoding="utf-8"))
    assert space["metadata"]["name"] == base["namespace"]
    assert space["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
