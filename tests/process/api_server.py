"""An API server of Kubernetes without nodes: what Helm needs of one, and what a real one refuses.

An object is validated against Kubernetes' own schema, strictly, and by the rules that no schema has. Pods are not run: a
workload is ready as soon as everything that its pods refer to is there, and a Job is then complete.
"""

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import yaml

from tests.charts import containers, selects
from tests.http_servers import serving

Object = dict[str, Any]
OPERATORS = {
    "postgresql.cnpg.io/v1": ["Cluster"],
    "monitoring.coreos.com/v1": ["ServiceMonitor", "PodMonitor", "PrometheusRule"],
}
KINDS = {
    "v1": ["Namespace", "Secret", "ConfigMap", "Service", "ServiceAccount", "PersistentVolumeClaim", "Pod", "Event"],
    "apps/v1": ["Deployment", "StatefulSet", "ReplicaSet"],
    "batch/v1": ["Job", "CronJob"],
    "policy/v1": ["PodDisruptionBudget"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
}
OF_THE_CLUSTER = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
DNS_LABEL, DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class RefusedError(Exception):
    """What the API server answers instead."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def invalid(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)


class Key(NamedTuple):
    kind: str
    namespace: str
    name: str


def plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}es" if lower.endswith("s") else f"{lower}s"


# --- what is refused -------------------------------------------------------------------------------------------------


def template_of(item: Object) -> Object | None:
    """The template of the pods that it makes."""
    spec = item.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    found: Object | None = spec.get("template") if item["kind"] in {"Deployment", "StatefulSet", "Job", "CronJob"} else None
    return found


def check_pods(item: Object, template: Object, *, restricted: bool) -> None:
    """The rules of pods that no schema has; with `restricted` those of the Pod Security Standard, too."""
    spec, claimed = template["spec"], item["spec"].get("volumeClaimTemplates", [])
    volumes = [one["name"] for one in spec.get("volumes", [])] + [one["metadata"]["name"] for one in claimed]
    if len(volumes) != len(set(volumes)):
        raise invalid("spec.volumes: two have the same name")
    ports = [port for one in containers(template) for port in one.get("ports", [])]
    if any(len(port.get("name", "")) > 15 for port in ports):
        raise invalid("ports.name: must be no more than 15 characters")
    for one in containers(template):
        if missing := {mount["name"] for mount in one.get("volumeMounts", [])} - set(volumes):
            raise invalid(f"containers.volumeMounts: {missing} is no volume")
        paths = [mount["mountPath"] for mount in one.get("volumeMounts", [])]
        if len(paths) != len(set(paths)):
            raise invalid("containers.volumeMounts: two have the same path")
        if restricted and not (
            RESTRICTED.items() <= one.get("securityContext", {}).items()
            and spec.get("securityContext", {}).get("runAsNonRoot") is True
            and spec["securityContext"].get("seccompProfile") == {"type": "RuntimeDefault"}
            and not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
            and not any("hostPath" in volume for volume in spec.get("volumes", []))
        ):
            message = f'pods "{item["metadata"]["name"]}" is forbidden: violates PodSecurity "restricted:latest"'
            raise RefusedError(HTTPStatus.FORBIDDEN, "Forbidden", message)
    selector = item["spec"].get("selector")
    if item["kind"] in {"Deployment", "StatefulSet"} and not selects(selector, template["metadata"]["labels"]):
        raise invalid("spec.template.metadata.labels: `selector` does not match template `labels`")


def references(template: Object) -> Iterator[tuple[str, str, str]]:
    """Kind, name and key (or nothing) of what pods need to start."""
    for volume in template["spec"].get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], "".join(one["key"] for one in volume["secret"].get("items", []))
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], ""
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], ""
    if account := template["spec"].get("serviceAccountName"):
        yield "ServiceAccount", account, ""
    for container in containers(template):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", reference["name"], reference["key"]


# --- the store -------------------------------------------------------------------------------------------------------


class Cluster:
    """What is stored, and in which order it was made and changed."""

    def __init__(self, version: str, *, operators: bool = True) -> None:
        self.version = version
        self.kinds = {**KINDS, **(OPERATORS if operators else {})}
        self.stored: dict[Key, Object] = {}
        self.made: list[Key] = []
        self.written: list[Key] = []
        self.number = 0

    def create(self, item: Object, namespace: str) -> Object:
        """Admit it and store it.  Raises RefusedError."""
        key = Key(item["kind"], namespace, item["metadata"]["name"])
        if key in self.stored:
            raise RefusedError(HTTPStatus.CONFLICT, "AlreadyExists", f'{plural(key.kind)} "{key.name}" already exists')
        self._admit(item, key)
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-10-01T00:00:00Z", "generation": 1}
        if namespace:
            item["metadata"]["namespace"] = namespace
        self.made.append(key)
        return self._store(key, item)

    def replace(self, key: Key, item: Object) -> Object:
        """Admit another content of what is stored.  Raises RefusedError."""
        old = self.get(key)
        self._admit(item, key)
        if key.kind == "Job" and old["spec"]["template"] != item["spec"]["template"]:
            raise invalid(f'Job.batch "{key.name}" is invalid: spec.template: field is immutable')
        if key.kind in {"Deployment", "StatefulSet"} and old["spec"]["selector"] != item["spec"]["selector"]:
            raise invalid(f"{key.kind} {key.name}: spec.selector: field is immutable")
        item["metadata"]["generation"] = old["metadata"]["generation"] + 1
        return self._store(key, item)

    def get(self, key: Key) -> Object:
        if key not in self.stored:
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", f'{plural(key.kind)} "{key.name}" not found')
        return self.stored[key]

    def delete(self, key: Key) -> Object:
        found = self.get(key)
        del self.stored[key]
        for other in [one for one, item in self.stored.items() if one.namespace == key.namespace and owned(item, found)]:
            self.delete(other)
        return found

    def listed(self, kind: str, namespace: str) -> list[Object]:
        return [item for key, item in self.stored.items() if key.kind == kind and namespace in ("", key.namespace)]

    def names(self, kind: str) -> list[str]:
        """Of what there is of a kind, without Helm's records of its releases."""
        return sorted(key.name for key in self.stored if key.kind == kind and not key.name.startswith("sh.helm."))

    def _admit(self, item: Object, key: Key) -> None:
        if key.namespace and Key("Namespace", "", key.namespace) not in self.stored:
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{key.namespace}" not found')
        form = DNS_LABEL if key.kind in {"Service", "Namespace"} else DNS_NAME
        if not re.fullmatch(r"[a-z0-9:.-]+" if "Role" in key.kind else form, key.name) or len(key.name) > 253:
            raise invalid(f"metadata.name: {key.name!r}")
        if item["apiVersion"] not in OPERATORS:
            try:
                given = {name: value for name, value in item.items() if name != "status"}
                kubernetes_validate.validate(given, self.version, strict=True)
            except kubernetes_validate.ValidationError as error:
                said = f"{key.kind} {key.name}: {error.message}"
                raise RefusedError(HTTPStatus.BAD_REQUEST, "BadRequest", said) from error
        if template := template_of(item):
            labels = self.get(Key("Namespace", "", key.namespace))["metadata"].get("labels", {})
            enforced = labels.get("pod-security.kubernetes.io/enforce") == "restricted"
            check_pods(item, template, restricted=enforced)

    def _store(self, key: Key, item: Object) -> Object:
        self.number += 1
        self.written.append(key)
        item["metadata"]["resourceVersion"] = str(self.number)
        if key.kind == "Secret" and "stringData" in item:
            item["data"] = {**item.get("data", {}), **item.pop("stringData")}
        self.stored[key] = item
        BECOMES.get(key.kind, lambda cluster, item: None)(self, item)
        return item

    def missing(self, item: Object) -> list[str]:
        """What the pods of this workload wait for."""
        found = []
        template = template_of(item)
        for kind, name, entry in references(template) if template else ():
            there = self.stored.get(Key(kind, item["metadata"]["namespace"], name))
            if there is None or (entry and entry not in there.get("data", {})):
                found.append(f"{kind} {name} {entry}".strip())
        return sorted(set(found))


def owned(item: Object, owner: Object) -> bool:
    return any(one["uid"] == owner["metadata"]["uid"] for one in item["metadata"].get("ownerReferences", []))


# --- what controllers do ---------------------------------------------------------------------------------------------


def deployment_runs(cluster: Cluster, item: Object) -> None:
    meta, spec = item["metadata"], item["spec"]
    replicas = spec.setdefault("replicas", 1)
    if cluster.missing(item):
        return
    item["status"] = {"observedGeneration": meta["generation"], "replicas": replicas, "readyReplicas": replicas,
                      "updatedReplicas": replicas, "availableReplicas": replicas}  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"], "controller": True}
    name, template = f"{meta['name']}-{meta['generation']}", spec["template"]
    cluster.stored[Key("ReplicaSet", meta["namespace"], name)] = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": meta["namespace"], "uid": str(uuid.uuid4()), "ownerReferences": [owner],
                     "labels": template["metadata"]["labels"], "resourceVersion": "1"},
        "spec": {"replicas": replicas, "selector": spec["selector"], "template": template},
        "status": {"replicas": replicas, "readyReplicas": replicas},
    }  # fmt: skip


def stateful_set_runs(cluster: Cluster, item: Object) -> None:
    if not cluster.missing(item):
        replicas = item["spec"].get("replicas", 1)
        item["status"] = {"observedGeneration": item["metadata"]["generation"], "replicas": replicas,
                          "readyReplicas": replicas, "updatedReplicas": replicas, "currentRevision": "1",
                          "updateRevision": "1"}  # fmt: skip


def job_completes(cluster: Cluster, item: Object) -> None:
    if not cluster.missing(item):
        item["status"] = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}


def service_gets_address(cluster: Cluster, item: Object) -> None:
    item["spec"].setdefault("clusterIP", f"10.0.0.{cluster.number % 250 + 1}")


def claim_is_bound(cluster: Cluster, item: Object) -> None:
    item["status"] = {"phase": "Bound"}


def operator_makes_database(cluster: Cluster, item: Object) -> None:
    """CloudNativePG leaves the address of the owner in a Secret; workloads that waited for it start."""
    meta = item["metadata"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{meta['name']}-app"}, "data": {"uri": ""}}
    if Key("Secret", meta["namespace"], f"{meta['name']}-app") not in cluster.stored:
        cluster.create(secret, meta["namespace"])
    for key, waiting in list(cluster.stored.items()):
        if key.kind in BECOMES and key.kind != "Cluster" and "status" not in waiting:
            BECOMES[key.kind](cluster, waiting)


BECOMES: Mapping[str, Callable[[Cluster, Object], None]] = {
    "Deployment": deployment_runs, "StatefulSet": stateful_set_runs, "Job": job_completes, "Service": service_gets_address,
    "PersistentVolumeClaim": claim_is_bound, "Cluster": operator_makes_database,
}  # fmt: skip


# --- Helm's own records, which its client writes as protocol buffers ------------------------------------------------------


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: an integer, or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            assert tag & 7 == 2, f"a field of wire type {tag & 7}"
            size = varint()
            yield tag >> 3, message[at : at + size]
            at += size


def secret_of(body: bytes) -> Object:
    """A Secret as objects have it.  Source: k8s.io/api/core/v1/generated.proto, ObjectMeta in k8s.io/apimachinery."""
    envelope = dict(fields(body.removeprefix(b"k8s\0")))
    item: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {}}
    assert dict(fields(envelope[1]))[2] == b"Secret"
    for number, value in fields(envelope[2]):
        if number == 2:
            entry = dict(fields(value))
            item["data"][entry[1].decode()] = base64.b64encode(entry[2]).decode()
        elif number == 3:
            item["type"] = value.decode()
        elif number == 1:
            for part, content in fields(value):
                if part in (1, 6):
                    item["metadata"]["name" if part == 1 else "resourceVersion"] = content.decode()
                elif part == 11:
                    entry = dict(fields(content))
                    item["metadata"].setdefault("labels", {})[entry[1].decode()] = entry[2].decode()
    return item


# --- HTTP ------------------------------------------------------------------------------------------------------------


def merged(old: Any, patch: Any) -> Any:
    """A strategic merge, as far as charts need it: lists of things with names are merged by name."""
    if isinstance(old, dict) and isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {name: value for name, value in patch.items() if name != "$patch"}
        found = dict(old)
        for name, value in patch.items():
            order = patch.get(f"$setElementOrder/{name}")
            if name.startswith("$"):
                continue
            if value is None:
                found.pop(name, None)
            elif isinstance(value, list) and order is not None:
                found[name] = by_name(old.get(name, []), value, order)
            else:
                found[name] = merged(old.get(name), value)
        return found
    return patch


def by_name(old: list[Any], patch: list[Any], order: list[Any]) -> list[Any]:
    key = next(iter(order[0])) if order and isinstance(order[0], dict) else "name"
    there = {item[key]: item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            there.pop(item[key], None)
        else:
            there[item[key]] = merged(there.get(item[key], {}), item)
    return [there[item[key]] for item in order if item[key] in there]


class ApiServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster

    def resources(self, version: str) -> list[Object]:
        return [
            {"name": plural(kind), "singularName": kind.lower(), "namespaced": kind not in OF_THE_CLUSTER, "kind": kind,
             "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}
            for kind in self.cluster.kinds[version]
        ]  # fmt: skip

    def description(self, version: str) -> Object:
        """It says that objects are validated here, so that clients need not do that."""
        if not version:
            at = {one: f"{'apis' if '/' in one else 'api'}/{one}" for one in self.cluster.kinds}
            return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in at.values()}}
        *group, plain = version.split("/")
        strict = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        paths = {
            f"/{plural(kind)}": {"patch": {"parameters": [strict], "responses": {}, "x-kubernetes-group-version-kind": {
                "group": "".join(group), "kind": kind, "version": plain}}}
            for kind in self.cluster.kinds.get(version, [])
        }  # fmt: skip
        return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": self.cluster.version}, "paths": paths}

    def discovery(self, parts: list[str]) -> Object | None:
        """What is asked before anything is done."""
        groups = [version for version in self.cluster.kinds if "/" in version]
        if parts == ["version"]:
            major, minor = self.cluster.version.split(".")[:2]
            return {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0"}
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            listed = []
            for group, version in (one.split("/") for one in groups):
                named = {"groupVersion": f"{group}/{version}", "version": version}
                listed.append({"name": group, "versions": [named], "preferredVersion": named})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        if parts[:2] == ["openapi", "v2"]:
            return {}  # which an old kubectl asks for; without a description it validates nothing by itself
        if parts[:2] == ["openapi", "v3"]:
            return self.description("/".join(parts[3:]))
        version = "/".join(parts[1:])
        if parts[0] in {"api", "apis"} and version in self.cluster.kinds:
            return {"kind": "APIResourceList", "groupVersion": version, "resources": self.resources(version)}
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            read = secret_of if body.startswith(b"k8s\0") else json.loads
            content = read(body) if body and self.command != "DELETE" else {}  # how to delete changes nothing here
            self._answer(HTTPStatus.OK, self._done(content))
        except RefusedError as refused:
            self._answer(refused.status, {
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": refused.reason,
                "code": int(refused.status), "message": str(refused),
            })  # fmt: skip

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _done(self, body: Object) -> Object:
        address = urlsplit(self.path)
        parts = address.path.strip("/").split("/")
        found = self.server.discovery(parts)
        if found is not None:
            return found
        version, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        kinds = {plural(kind): kind for kind in self.server.cluster.kinds.get(version, [])}
        if not rest or rest[0] not in kinds:
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        kind = kinds[rest[0]]
        cluster = self.server.cluster
        if self.command == "POST":
            return cluster.create(body, namespace)
        if len(rest) == 1:
            asked = parse_qs(address.query)
            items = [one for one in cluster.listed(kind, namespace) if chosen(one, asked)]
            return {"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}
        key = Key(kind, namespace, rest[1])
        if self.command == "DELETE":
            return cluster.delete(key)
        if self.command == "PUT":
            return cluster.replace(key, body)
        if self.command == "PATCH":
            return cluster.replace(key, merged(cluster.get(key), body))
        return cluster.get(key)

    def _answer(self, status: HTTPStatus, answer: Object) -> None:
        text = b"" if self.path.startswith("/openapi/v2") else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: Any) -> None:
        pass


def chosen(item: Object, asked: dict[str, list[str]]) -> bool:
    """Whether it has the labels and the name that are asked for."""
    labels = item["metadata"].get("labels", {})
    wanted = [pair.split("=", 1) for text in asked.get("labelSelector", []) for pair in text.split(",")]
    if any(labels.get(name) != value for name, value in wanted):
        return False
    return all(item["metadata"]["name"] == text.partition("=")[2] for text in asked.get("fieldSelector", []))


@contextmanager
def api_server(folder: Path, version: str, *, operators: bool = True) -> Iterator[tuple[Cluster, Path]]:
    """The cluster, and a kubeconfig that leads to it."""
    cluster = Cluster(version, operators=operators)
    with serving(ApiServer(cluster)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        file = folder / f"kubeconfig-{server.server_port}"
        file.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": address}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "users": [{"name": "fake", "user": {}}],
        }))  # fmt: skip
        yield cluster, file
