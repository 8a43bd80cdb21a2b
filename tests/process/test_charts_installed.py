"""Real Helm installs, upgrades, rolls back and removes the charts on an API server that refuses what Kubernetes refuses."""

import base64
import os
import subprocess
from copy import deepcopy
from pathlib import Path

import pytest
from kubernetes_validate import utils as validation

from tests.charts import (
    CASES,
    CHARTS,
    HELM,
    PROJECT,
    VALUES,
    containers,
    environment,
    named,
    objects,
    of_kind,
    pod_templates,
    selects,
)
from tests.documented import AGENTS, PRODUCTION, UPGRADING, blocks, commands, manifests, words
from tests.process.api_server import Cluster, Key, RefusedError, api_server, references

OLDEST, NEWEST = "1.31", validation.latest_version()
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
WAIT = ("--wait", "--timeout", "30s")


class Release:
    """Helm with a cluster of its own."""

    def __init__(self, cluster: Cluster, config: Path) -> None:
        self.cluster, self.config = cluster, config

    def try_helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {**os.environ, "HELM_CACHE_HOME": str(self.config.parent), "HELM_CONFIG_HOME": str(self.config.parent)}
        argv = [HELM, *arguments, "--kubeconfig", str(self.config)]
        return subprocess.run(argv, cwd=PROJECT, env=own, capture_output=True, text=True)

    def helm(self, *arguments: str) -> str:
        done = self.try_helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def namespace(self, name: str) -> None:
        """One that enforces the strictest standard of pods."""
        metadata = {"name": name, "labels": RESTRICTED}
        self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, "")

    def secret(self, namespace: str, name: str, *keys: str) -> None:
        data = {key: base64.b64encode(b"x").decode() for key in keys}
        self.cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}, namespace)

    def made(self) -> list[tuple[str, str]]:
        """In order, without Helm's records."""
        return [(key.kind, key.name) for key in self.cluster.made if not key.name.startswith("sh.helm.")]

    def waiting(self) -> list[str]:
        """What workloads wait for."""
        return [text for item in self.cluster.stored.values() for text in self.cluster.missing(item)]


def of_others(chart: str, values: str) -> dict[str, dict[str, set[str]]]:
    """Kind, name and keys of what pods refer to and the chart does not make: the reader makes it first."""
    items = objects(chart, values)
    own = {(item["kind"], item["metadata"]["name"]) for item in items} | {("Secret", "suanpan-db-app")}
    found: dict[str, dict[str, set[str]]] = {}
    for _, template in pod_templates(items):
        for kind, name, key in references(template):
            if (kind, name) not in own:
                found.setdefault(kind, {}).setdefault(name, set()).update({key} - {""})
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(("chart", "values"), CASES)
def test_a_restricted_namespace_takes_every_object_and_every_pod_can_start(
    tmp_path: Path, chart: str, values: str, version: str
) -> None:
    with api_server(tmp_path, version) as server:
        release = Release(*server)
        release.namespace("billing")
        needed = of_others(chart, values)
        for name, keys in needed.pop("Secret", {}).items():
            release.secret("billing", name, *keys)
        for kind in ("ConfigMap", "PersistentVolumeClaim"):
            spec = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
            for name in needed.pop(kind, {}):
                more = spec if kind == "PersistentVolumeClaim" else {}
                made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}
                release.cluster.create(made, "billing")
        assert needed == {}
        file = str(VALUES / chart / f"{values}.yaml")
        release.helm("install", chart, str(CHARTS / chart), "--namespace", "billing", "--values", file, *WAIT)
        rendered = {(item["kind"], item["metadata"]["name"]) for item in objects(chart, values)}
        assert rendered <= set(release.made())
        assert release.waiting() == []


# --- what the page says ----------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> Release:
    """By the commands of the page, from a cluster with nothing in it but the operators."""
    with api_server(tmp_path, OLDEST) as server:
        release = Release(*server)
        made, install = commands(blocks(PRODUCTION)[0].text)[:2]
        for item in manifests(made, tmp_path):
            release.cluster.create(item, "" if item["kind"] == "Namespace" else item["metadata"]["namespace"])
        release.helm(*words(install)[1:])
        yield release


def test_after_two_commands_every_pod_can_start_and_prometheus_finds_web(installed: Release) -> None:
    assert installed.waiting() == []
    cluster = installed.cluster
    assert cluster.names("Deployment") == [
        "suanpan-broker", "suanpan-counter", "suanpan-scheduler", "suanpan-web", "suanpan-worker",
    ]  # fmt: skip
    monitor = cluster.get(Key("ServiceMonitor", "suanpan", "suanpan"))
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus"
    (service,) = [one for one in cluster.listed("Service", "suanpan") if selects(monitor["spec"]["selector"],
                                                                                  one["metadata"]["labels"])]  # fmt: skip
    pods = cluster.get(Key("Deployment", "suanpan", "suanpan-web"))["spec"]["template"]
    assert selects({"matchLabels": service["spec"]["selector"]}, pods["metadata"]["labels"])
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = [one for one in service["spec"]["ports"] if one["name"] == endpoint["port"]]
    (served,) = [one for one in containers(pods)[0]["ports"] if one["name"] == port["targetPort"]]
    assert (endpoint["path"], served["containerPort"]) == ("/metrics", 8000)


UPGRADE = ("upgrade", "suanpan", "docker/charts/suanpan", "--namespace", "suanpan", "--reuse-values")


def images(release: Release) -> set[str]:
    """Of the parts, without those of others."""
    pods = [item["spec"]["template"] for item in release.cluster.listed("Deployment", "suanpan")]
    return {one["image"] for template in pods for one in containers(template) if "suanpan" in one["image"]}


def test_an_upgrade_migrates_before_any_part_changes_and_a_rollback_does_not_migrate(installed: Release) -> None:
    """A migration goes forward only, and the release before works on its schema."""
    cluster = installed.cluster
    (rollback,) = [text for block in blocks(UPGRADING) for text in commands(block.text) if "rollback" in text]
    for tag in ("1.1.0", "1.2.0"):
        cluster.written.clear()
        installed.helm(*UPGRADE, "--set", f"image.tag={tag}", *WAIT)
        changed = [key for key in cluster.written if key.kind in {"Job", "Deployment"}]
        assert [key.kind for key in changed] == ["Job", *["Deployment"] * 4]
        (migration,) = containers(cluster.get(Key("Job", "suanpan", "suanpan-migrate"))["spec"]["template"])
        assert (images(installed), migration["image"]) == ({f"REGISTRY/suanpan:{tag}"}, f"REGISTRY/suanpan:{tag}")
        assert "DATABASE_OWNER_URL" in environment(migration)
    cluster.written.clear()
    installed.helm(*words(rollback)[1:])
    assert images(installed) == {"REGISTRY/suanpan:1.1.0"}
    assert "Job" not in {key.kind for key in cluster.written}


def test_the_first_release_can_be_rolled_back_to_from_any_later_one(installed: Release) -> None:
    """Its Job comes again with it, and finds nothing to migrate."""
    for tag in ("1.1.0", "1.2.0"):
        installed.helm(*UPGRADE, "--set", f"image.tag={tag}", *WAIT)
    assert installed.cluster.names("Job") == ["suanpan-migrate"]
    installed.helm("rollback", "suanpan", "1", "--namespace", "suanpan", *WAIT)
    assert images(installed) == {"REGISTRY/suanpan:1.0.0"}
    assert installed.cluster.names("Job") == ["suanpan-migrate", "suanpan-migrate-first"]


def test_what_holds_data_outlives_the_release(installed: Release) -> None:
    installed.helm(*UPGRADE, "--set", "backup.enabled=true", *WAIT)
    installed.helm("uninstall", "suanpan", "--namespace", "suanpan")
    left = {kind: installed.cluster.names(kind) for kind in ("Cluster", "PersistentVolumeClaim", "Deployment", "CronJob")}
    assert left == {
        "Cluster": ["suanpan-db"], "PersistentVolumeClaim": ["suanpan-backup"], "Deployment": [], "CronJob": [],
    }  # fmt: skip


def test_the_agents_start_with_the_commands_of_their_page(tmp_path: Path) -> None:
    (block,) = [one for one in blocks(AGENTS) if "helm install" in one.text]
    _namespace, secret, install = commands(block.text)
    with api_server(tmp_path, OLDEST) as server:
        release = Release(*server)
        release.namespace("suanpan")
        name, source = words(secret)[-2:]
        release.secret("suanpan", name, source.removeprefix("--from-file="))
        release.helm(*words(install)[1:], *WAIT)
        assert release.waiting() == []
        assert release.cluster.names("StatefulSet") == ["gpu-agent"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_without_the_secrets_no_release_is_called_done(tmp_path: Path) -> None:
    with api_server(tmp_path, OLDEST) as server:
        release = Release(*server)
        release.namespace("suanpan")
        file = str(VALUES / "suanpan-agent/minimal.yaml")
        given = ("install", "a", str(CHARTS / "suanpan-agent"), "--namespace", "suanpan", "--values", file)
        done = release.try_helm(*given, "--wait", "--timeout", "3s")
        assert done.returncode == 1
        assert release.waiting() == ["Secret suanpan-token token"]


def test_without_the_operators_helm_names_the_kind_that_is_missing(tmp_path: Path) -> None:
    with api_server(tmp_path, OLDEST, operators=False) as server:
        release = Release(*server)
        release.namespace("suanpan")
        # validated by the server only: with its own description of kinds Helm ends earlier, and names none
        install = words(commands(blocks(PRODUCTION)[0].text)[1])[1:]
        done = release.try_helm(*install, "--disable-openapi-validation")
        assert done.returncode == 1
        assert 'no matches for kind "Cluster" in version "postgresql.cnpg.io/v1"' in done.stderr
        assert release.made() == [("Namespace", "suanpan")]


@pytest.mark.parametrize(("path", "value", "said"), [
    (("securityContext", "runAsNonRoot"), False, "violates PodSecurity"),
    (("containers", 0, "securityContext", "allowPrivilegeEscalation"), True, "violates PodSecurity"),
    (("containers", 0, "imagePullPolcy"), "Always", "imagePullPolcy"),
    (("containers", 0, "volumeMounts", 0, "name"), "tpm", "is no volume"),
    (("containers", 0, "ports", 0, "name"), "a-name-of-seventeen", "15 characters"),
    (("volumes", 0, "name"), "Tmp/1", "is no volume"),
])  # fmt: skip
def test_a_pod_that_kubernetes_would_refuse_is_refused(
    path: tuple[str | int, ...], value: object, said: str
) -> None:
    cluster = Cluster(OLDEST)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": RESTRICTED}}, "")
    good = named(objects("suanpan", "minimal"), "Deployment", "suanpan-web")
    cluster.create(deepcopy(good), "n")
    bad = deepcopy(good)
    bad["metadata"]["name"] = "other"
    place = bad["spec"]["template"]["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(RefusedError, match=said):
        cluster.create(bad, "n")
    assert of_kind(list(cluster.stored.values()), "Deployment")
