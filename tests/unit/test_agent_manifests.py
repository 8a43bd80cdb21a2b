"""The agents' manifests against the Kubernetes API: every field is one that the API knows, of its type and with its values.

The schema is that of the official client, whose models are generated from Kubernetes' OpenAPI description.
"""

import copy
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as official
from prometheus_client import CollectorRegistry, start_http_server
from pydantic import ValidationError

from metering.efficiency import command as efficiency_command
from metering.k8s.health import Health, HealthServer

PROJECT = Path(__file__).resolve().parents[2]
MANIFESTS = PROJECT / "docker/k8s"
PODS = ("Deployment", "StatefulSet")


def objects() -> list[dict[str, Any]]:
    """All objects of the manifests but the kustomization itself, which is no object of the API server."""
    names = sorted(path for path in MANIFESTS.iterdir() if path.name != "kustomization.yaml")
    return [item for path in names for item in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def model_of(item: dict[str, Any]) -> Any:
    """The client's model of an object's kind in the version that it names."""
    version = item["apiVersion"].rpartition("/")[2]
    return getattr(official, f"{version[0].upper()}{version[1:]}{item['kind']}")


def breaks_of(item: dict[str, Any]) -> list[str]:
    """Where an object is none of the API: unknown, missing and wrongly typed fields, and names in the client's spelling."""
    model = model_of(item)
    try:
        read = model.model_validate(item)
    except ValidationError as error:
        return [f"{'.'.join(map(str, told['loc']))}: {told['type']}" for told in error.errors()]
    written = read.model_dump(by_alias=True, exclude_unset=True)
    return [] if written == item else [f"{item} is read as {written}"]


@pytest.mark.parametrize("item", objects(), ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_every_object_is_what_the_api_takes(item: dict[str, Any]) -> None:
    assert breaks_of(item) == []
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", item["metadata"]["name"])


def agent_with(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> list[str]:
    (item,) = [copy.deepcopy(item) for item in objects() if item["kind"] == "StatefulSet"]
    spec = item["spec"]["template"]["spec"]
    change(spec, spec["containers"][0])
    return breaks_of(item)


CONTAINER = "spec.template.spec.containers.0"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda spec, container: container.update(readinesProbe={}), f"{CONTAINER}.readinesProbe: extra_forbidden"),
        (lambda spec, container: spec.update(runAsNonRoot=True), "spec.template.spec.runAsNonRoot: extra_forbidden"),
        (lambda spec, container: container["ports"][0].update(containerPort="9464"),
         f"{CONTAINER}.ports.0.containerPort: int_type"),
        (lambda spec, container: container["volumeMounts"][0].pop("mountPath"),
         f"{CONTAINER}.volumeMounts.0.mountPath: missing"),
        (lambda spec, container: container["securityContext"].update(readOnlyRootFilesystem="yes"),
         f"{CONTAINER}.securityContext.readOnlyRootFilesystem: bool_type"),
        (lambda spec, container: container.update(args="gpu"), f"{CONTAINER}.args: list_type"),
    ],
)  # fmt: skip
def test_what_the_api_would_refuse_is_found(change: Callable[[Any, Any], object], told: str) -> None:
    assert agent_with(change) == [told]


def test_a_field_in_the_spelling_of_the_client_is_found() -> None:
    (found,) = agent_with(lambda spec, container: container.update(image_pull_policy="Always"))
    assert "is read as" in found


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
    told = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"] if "=" in argument)
    assert int(told["port" if container["args"][0] == "gpu" else "listen"]) == port["containerPort"]
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert [probe["port"] for probe in probes] == [port["name"]] * 2
    with SERVERS[container["args"][0]]() as address:
        for probe in probes:
            with urllib.request.urlopen(f"{address}{probe['path']}", timeout=10) as answer:
                assert answer.status == 200
