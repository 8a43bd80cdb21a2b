"""The commands of the pages that make objects are run by kubectl, on an API server that refuses what Kubernetes refuses."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.documented import PAGES, PROJECT, blocks, commands
from tests.operations.peers import program
from tests.process.api_server import Cluster, api_server

OLDEST = "1.31"
MADE = {
    "kubectl create -f - <<OBJECTS": {"Namespace suanpan", "Secret suanpan", "Secret suanpan-database"},
    "kubectl -n suanpan create secret generic suanpan ": {"Secret suanpan"},
    "kubectl apply -k docker/k8s/suanpan": {
        "Deployment suanpan-counter", "Deployment suanpan-scheduler", "Deployment suanpan-web", "Deployment suanpan-worker",
        "HorizontalPodAutoscaler suanpan-web", "Ingress suanpan", "Job suanpan-migrate", "Namespace suanpan",
        "NetworkPolicy suanpan", "NetworkPolicy suanpan-web", "PodDisruptionBudget suanpan-web", "Service suanpan-web",
    },
    "kubectl create namespace suanpan": {"Namespace suanpan"},
    "kubectl -n suanpan create secret generic suanpan-token": {"Secret suanpan-token"},
    "kubectl -n suanpan create configmap company-ca": {"ConfigMap company-ca"},
}  # fmt: skip
"""What each command makes, by how it begins, in the order of the pages."""


def making() -> list[str]:
    every = [text for page in PAGES for block in blocks(page) for text in commands(block.text)]
    return [text for text in every if text.startswith("kubectl ") and " exec " not in text]


def objects(cluster: Cluster) -> set[str]:
    return {f"{key.kind} {key.name}" for key in cluster.made}


@pytest.mark.parametrize(("command", "expected"), [*zip(making(), MADE.items(), strict=True)], ids=list(MADE))
def test_a_command_of_the_pages_makes_what_they_say(command: str, expected: tuple[str, set[str]], tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("of the reader")
    (tmp_path / "docker").symlink_to(PROJECT / "docker")
    kubectl = Path(program("kubectl"))
    with api_server(tmp_path, OLDEST) as (cluster, config):
        own = {"PATH": f"{kubectl.parent}:{os.environ['PATH']}", "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        start, made = expected
        if "Namespace suanpan" not in made:
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "suanpan"}}, "")
            made = made | {"Namespace suanpan"}
        done = subprocess.run(["bash", "-euc", command], env=own, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert (command.startswith(start), objects(cluster)) == (True, made)
