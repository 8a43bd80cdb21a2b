"""The agents' manifests: what an object names is there, and every probe asks an address that the agent serves."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from metering.efficiency import command as efficiency_command
from metering.k8s.health import Health, HealthServer

PROJECT = Path(__file__).resolve().parents[2]
MANIFESTS = PROJECT / "docker/k8s/suanpan-agent"
PODS = ("Deployment", "StatefulSet")


def objects() -> list[dict[str, Any]]:
    """All objects of the manifests but the kustomization itself, which is no object of the API server."""
    files = [MANIFESTS / "namespace.yaml", MANIFESTS / "manifests.yaml"]
    return [item for path in files for item in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


@contextmanager
def gpu_server() -> Iterator[str]:
    health = Health(lambda: True)
    health.ready = True
    server = HealthServer(health, 0)
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop()


@contextmanager
def efficiency_server() -> Iterator[str]:
    """What `--listen` of the command starts."""
    assert efficiency_command.start_http_server is start_http_server
    server, thread = start_http_server(0, addr="127.0.0.1", registry=CollectorRegistry())
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


SERVERS = {"gpu": gpu_server, "efficiency": efficiency_server}


def named(kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in objects() if item["kind"] == kind}


def workloads() -> list[dict[str, Any]]:
    return [item["spec"] for item in objects() if item["kind"] in PODS]


def name_of(workload: dict[str, Any]) -> str:
    return str(workload["selector"]["matchLabels"]["app.kubernetes.io/name"])


@pytest.mark.parametrize("spec", workloads(), ids=name_of)
def test_what_an_object_names_is_there(spec: dict[str, Any]) -> None:
    template, pod = spec["template"], spec["template"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    claimed = {item["metadata"]["name"] for item in spec.get("volumeClaimTemplates", ())}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == claimed | set(volumes)
    assert not claimed & set(volumes)
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in named("PersistentVolumeClaim")
        if "configMap" in volume:
            assert volume["configMap"]["name"] in named("ConfigMap")
    if "serviceName" in spec:
        assert spec["serviceName"] in named("Service")
    if "serviceAccountName" in pod:
        assert pod["serviceAccountName"] in named("ServiceAccount")


def test_services_and_bindings_lead_to_something() -> None:
    templates = [spec["template"] for spec in workloads()]
    for item in objects():
        if item["kind"] == "Service":
            chosen = [one for one in templates if item["spec"]["selector"].items() <= one["metadata"]["labels"].items()]
            opened = [port for one in chosen for port in one["spec"]["containers"][0]["ports"]]
            assert item["spec"]["ports"] == [{"name": port["name"], "port": port["containerPort"]} for port in opened]
        if item["kind"].endswith("RoleBinding"):
            assert item["roleRef"]["name"] in named(item["roleRef"]["kind"])
            assert all(subject["name"] in named(subject["kind"]) for subject in item["subjects"])


@pytest.mark.parametrize("spec", workloads(), ids=name_of)
def test_probes_ask_the_port_that_the_arguments_open_for_an_address_that_it_serves(spec: dict[str, Any]) -> None:
    (container,) = spec["template"]["spec"]["containers"]
    (port,) = container["ports"]
    reported = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"] if "=" in argument)
    assert int(reported["port" if container["args"][0] == "gpu" else "listen"]) == port["containerPort"]
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert [probe["port"] for probe in probes] == [port["name"]] * 2
    with SERVERS[container["args"][0]]() as address:
        for probe in probes:
            with urllib.request.urlopen(f"{address}{probe['path']}", timeout=10) as answer:
                assert answer.status == 200
