"""Real Helm renders the charts, and every object is what Kubernetes and this project ask of it. No cluster is needed."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils as validation
from packaging.version import Version

from tests import charts
from tests.charts import (
    CASES,
    CHARTS,
    HARDENED,
    PROJECT,
    containers,
    helm,
    named,
    objects,
    of_kind,
    pod_templates,
    selects,
)

ENTRYPOINT = (PROJECT / "docker/entrypoint.sh").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((PROJECT / "docker/compose.yaml").read_text(encoding="utf-8"))
VERSIONS = sorted({version for version in validation.all_versions() if Version(version) >= Version("1.31")}, key=Version)
DEFINED_BY_OPERATORS = {"Cluster", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
SERVING = {"web": 8000}
SILENT = {"counter", "worker", "scheduler", "engine-agent"}
"""They serve nothing. Any probe of them would ask the broker or the database, and end them for a fault of theirs."""
ONCE = {"counter", "scheduler", "broker", "efficiency-agent", "engine-agent"}
every_case = pytest.mark.parametrize(("chart", "values"), CASES)


# --- what Helm and Kubernetes say ------------------------------------------------------------------------------------


def test_the_cases_are_those_that_are_meant() -> None:
    assert CASES == [
        ("suanpan", "cloudnativepg"), ("suanpan", "everything"), ("suanpan", "external-database"), ("suanpan", "minimal"),
        ("suanpan-agent", "engines-only"), ("suanpan-agent", "everything"), ("suanpan-agent", "minimal"),
    ]  # fmt: skip


@every_case
def test_helm_finds_no_fault_in_the_chart(chart: str, values: str) -> None:
    file = str(charts.VALUES / chart / f"{values}.yaml")
    done = helm("lint", "--strict", "--quiet", str(CHARTS / chart), "--values", file)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.fixture(scope="module", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    """The validator reads megabytes of definitions for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "schema_contents", cache(validation.schema_contents))
        yield


@pytest.mark.parametrize("version", VERSIONS)
@every_case
def test_every_object_is_one_that_kubernetes_knows(chart: str, values: str, version: str) -> None:
    for item in objects(chart, values):
        if item["kind"] not in DEFINED_BY_OPERATORS:
            kubernetes_validate.validate(item, version, strict=True)


def test_the_versions_of_kubernetes_are_those_from_1_31_on() -> None:
    assert VERSIONS[0].startswith("1.31")
    assert len(VERSIONS) >= 7


@pytest.mark.parametrize(
    ("change", "named_in_the_error"),
    [
        (lambda spec, container: spec.update(runAsNonRoot=True), "runAsNonRoot"),
        (lambda spec, container: container.update(readinesProbe={}), "readinesProbe"),
        (lambda spec, container: container.update(image_pull_policy="Always"), "image_pull_policy"),
        (lambda spec, container: container["ports"][0].update(containerPort="9464"), "9464"),
        (lambda spec, container: container["volumeMounts"][0].pop("mountPath"), "mountPath"),
        (lambda spec, container: container["securityContext"].update(readOnlyRootFilesystem="yes"), "yes"),
        (lambda spec, container: container.update(args="gpu"), "gpu"),
    ],
)
def test_what_kubernetes_would_refuse_is_found(change: Callable[[Any, Any], object], named_in_the_error: str) -> None:
    agent = deepcopy(named(objects("suanpan-agent", "minimal"), "StatefulSet", "gpu-agent"))
    spec = agent["spec"]["template"]["spec"]
    change(spec, spec["containers"][0])
    with pytest.raises(kubernetes_validate.ValidationError, match=named_in_the_error):
        kubernetes_validate.validate(agent, "1.31", strict=True)


@every_case
def test_no_two_objects_have_the_same_name(chart: str, values: str) -> None:
    names = [(item["kind"], item["metadata"]["name"]) for item in objects(chart, values)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("chart", "given", "named_in_the_error"),
    [
        ("suanpan", "web.replica=2", "replica"),
        ("suanpan", "settings.SECRET_KEY=abc", "SECRET_KEY"),
        ("suanpan", "settings.OIDC_SERVERURL=x", "OIDC_SERVERURL"),
        ("suanpan", "settings.REQUIRE_TWO_FACTOR=yes", "REQUIRE_TWO_FACTOR"),
        ("suanpan", "settings.TRUSTED_PROXIES=one", "TRUSTED_PROXIES"),
        ("suanpan", "settings.OIDC_ROLES=finance", "OIDC_ROLES"),
        ("suanpan", "secrets.MAIL_URL=smtp://u:p@mail", "MAIL_URL"),
        ("suanpan", "web.resources.limits=null", "limits"),
        ("suanpan", "backup.schedule=nightly", "schedule"),
        ("suanpan", "ingres.enabled=true", "ingres"),
        ("suanpan-agent", "endpoint=billing.example.com", "endpoint"),
        ("suanpan-agent", "cluster=", "cluster"),
        ("suanpan-agent", "gpu.extraArgs={pod-label}", "extraArgs"),
    ],
)
def test_a_value_that_the_chart_does_not_know_is_refused_by_name(chart: str, given: str, named_in_the_error: str) -> None:
    values = str(charts.VALUES / chart / "minimal.yaml")
    done = helm("template", "x", str(CHARTS / chart), "--values", values, "--set", given)
    assert done.returncode == 1
    assert "don't meet the specifications of the schema" in done.stderr
    assert named_in_the_error in done.stderr


@pytest.mark.parametrize("chart", ["suanpan", "suanpan-agent"])
def test_the_schema_knows_every_value_and_allows_no_other(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text(encoding="utf-8"))
    assert open_objects(schema, schema["definitions"], "") == []


def open_objects(schema: Any, definitions: Any, path: str) -> list[str]:
    """Where an object lists its properties and still takes others."""
    if not isinstance(schema, dict):
        return []
    found = [path] if "properties" in schema and schema.get("additionalProperties") is not False else []
    for name, value in schema.get("properties", {}).items():
        found += open_objects(value, definitions, f"{path}.{name}")
    return found


def test_an_ingress_without_a_host_is_refused() -> None:
    done = helm("template", "x", str(CHARTS / "suanpan"), "--set", "ingress.enabled=true")
    assert done.returncode == 1
    assert "set host, the name under which people reach the platform" in done.stderr


# --- what belongs together -------------------------------------------------------------------------------------------


@every_case
def test_selectors_match_the_pods_that_they_mean(chart: str, values: str) -> None:
    items = objects(chart, values)
    pods = {name: template["metadata"]["labels"] for name, template in pod_templates(items)}
    for item in of_kind(items, "Deployment", "StatefulSet"):
        labels = pods[f"{item['kind']}/{item['metadata']['name']}"]
        assert selects(item["spec"]["selector"], labels)
        assert [name for name, other in pods.items() if selects(item["spec"]["selector"], other)] == [
            f"{item['kind']}/{item['metadata']['name']}"
        ]
        for constraint in item["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            assert selects(constraint["labelSelector"], labels)
    for item in of_kind(items, "PodDisruptionBudget"):
        assert [name for name, labels in pods.items() if selects(item["spec"]["selector"], labels)] == [
            f"Deployment/{item['metadata']['name']}"
        ]
    for item in of_kind(items, "NetworkPolicy"):
        assert any(selects(item["spec"]["podSelector"], labels) for labels in pods.values())
    for item in of_kind(items, "PodMonitor"):
        assert any(selects(item["spec"]["selector"], labels) for labels in pods.values())


@every_case
def test_services_lead_to_a_port_of_the_pods_that_they_select(chart: str, values: str) -> None:
    items = objects(chart, values)
    for service in of_kind(items, "Service"):
        (template,) = [
            template for _, template in pod_templates(items)
            if selects({"matchLabels": service["spec"]["selector"]}, template["metadata"]["labels"])
        ]  # fmt: skip
        ports = {port["name"]: port["containerPort"] for item in containers(template) for port in item.get("ports", [])}
        assert {port.get("targetPort", port["name"]): port["port"] for port in service["spec"]["ports"]} == ports


@every_case
def test_what_an_object_names_is_there(chart: str, values: str) -> None:
    items = objects(chart, values)
    services = {
        item["metadata"]["name"]: {port["name"] for port in item["spec"]["ports"]} for item in of_kind(items, "Service")
    }
    for item in of_kind(items, "Ingress"):
        for path in item["spec"]["rules"][0]["http"]["paths"]:
            backend = path["backend"]["service"]
            assert backend["port"]["name"] in services[backend["name"]]
    for item in of_kind(items, "HorizontalPodAutoscaler"):
        target = item["spec"]["scaleTargetRef"]
        assert "replicas" not in named(items, target["kind"], target["name"])["spec"]
    for item in of_kind(items, "ServiceMonitor"):
        found = [one for one in of_kind(items, "Service") if selects(item["spec"]["selector"], one["metadata"]["labels"])]
        assert sorted(one["metadata"]["name"] for one in found) == ["suanpan-web"]
        assert all(item["spec"]["endpoints"][0]["port"] in services[one["metadata"]["name"]] for one in found)
    claims = {item["metadata"]["name"] for item in of_kind(items, "PersistentVolumeClaim")}
    wanted = {
        volume["persistentVolumeClaim"]["claimName"]
        for _, template in pod_templates(items) for volume in template["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    }  # fmt: skip
    assert wanted - {"training-logs"} == claims


@every_case
def test_what_a_container_mounts_is_a_volume_of_its_pod(chart: str, values: str) -> None:
    items = objects(chart, values)
    for name, template in pod_templates(items):
        kind, _, plain = name.partition("/")
        made = named(items, kind, plain)["spec"].get("volumeClaimTemplates", [])
        volumes = {volume["name"] for volume in [*template["spec"].get("volumes", []), *(one["metadata"] for one in made)]}
        assert {mount["name"] for one in containers(template) for mount in one["volumeMounts"]} == volumes


# --- how pods run ----------------------------------------------------------------------------------------------------


@every_case
def test_every_pod_is_unprivileged_and_every_container_limited(chart: str, values: str) -> None:
    for name, template in pod_templates(objects(chart, values)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))
        assert spec.get("automountServiceAccountToken", True) is (name == "StatefulSet/gpu-agent")
        for container in containers(template):
            assert container["securityContext"] == HARDENED
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


@every_case
def test_what_serves_is_probed_and_liveness_asks_nobody_else(chart: str, values: str) -> None:
    for item in of_kind(objects(chart, values), "Deployment", "StatefulSet"):
        part = item["metadata"]["name"].removeprefix("suanpan-")
        (container,) = item["spec"]["template"]["spec"]["containers"]
        probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
        if part in SILENT:
            assert (probes, container.get("ports", [])) == ({}, [])
            continue
        if part == "broker":
            assert all(probe["tcpSocket"] == {"port": "redis"} for probe in probes.values())
        elif part == "efficiency-agent":
            assert {probe["httpGet"]["path"] for probe in probes.values()} == {"/metrics"}
        else:
            paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
            assert (paths["livenessProbe"], paths["readinessProbe"]) == ("/healthz", "/readyz")
            assert paths.get("startupProbe", "/healthz") == "/healthz"
        assert {"livenessProbe", "readinessProbe"} <= set(probes)


def test_the_parts_are_those_that_compose_starts_and_the_entry_point_knows() -> None:
    items = objects("suanpan", "everything")
    parts = {template["spec"]["containers"][0]["args"][0] for name, template in pod_templates(items) if known(name)}
    assert parts == {name for name, service in COMPOSE["services"].items() if "build" in service}
    assert parts <= set(re.findall(r"(?m)^    ([a-z]+)\)$", ENTRYPOINT))
    for part, port in SERVING.items():
        (container,) = named(items, "Deployment", f"suanpan-{part}")["spec"]["template"]["spec"]["containers"]
        assert container["ports"] == [{"name": "http", "containerPort": port}]
        assert f"--port {port} " in ENTRYPOINT


def known(name: str) -> bool:
    return name.startswith(("Deployment/suanpan-", "Job/")) and not name.endswith("-broker")


@every_case
def test_what_may_run_only_once_never_runs_twice(chart: str, values: str) -> None:
    for item in of_kind(objects(chart, values), "Deployment"):
        if item["metadata"]["name"].removeprefix("suanpan-") in ONCE:
            assert (item["spec"]["replicas"], item["spec"]["strategy"]) == (1, {"type": "Recreate"})
        else:
            assert item["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@every_case
def test_charts_name_no_module_of_the_code(chart: str, values: str) -> None:
    assert re.findall(r"\b(?:billing|metering|pricing)\.[a-z_.]+:?\w*", without_hosts(charts.rendered(chart, values))) == []


def without_hosts(text: str) -> str:
    return re.sub(r"\bbilling\.(?:example\.com|internal)\b|\bbilling\.svc\b", "", text)


def test_the_database_has_room_for_every_connection_of_the_parts() -> None:
    values = yaml.safe_load((CHARTS / "suanpan/values.yaml").read_text(encoding="utf-8"))
    web, worker = values["web"], values["worker"]
    most = web["autoscaling"]["maxReplicas"] * web["workers"] * (web["threads"] + 4)
    most += worker["replicas"] * worker["processes"]
    assert most == 6 * 2 * 20 + 4
    assert most + 50 < int(values["database"]["cloudnativepg"]["parameters"]["max_connections"])
