"""The agents' image and manifests: complete without Django, and allowed to do no more than they need."""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from metering.__main__ import COMMANDS, parser

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = (PROJECT / "docker/agent.Dockerfile").read_text(encoding="utf-8")
PACKAGES = (PROJECT / "docker/agent-packages.txt").read_text(encoding="utf-8").split()
MANIFESTS = PROJECT / "docker/k8s/suanpan-agent"
ROOTS = ("httpx", "msgspec", "kubernetes", "pyyaml", "prometheus-client", "tzdata")
READING = {"get", "list", "watch"}


def objects() -> list[dict[str, Any]]:
    names = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [item for name in names for item in yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [item for item in objects() if item["kind"] in kinds]


def pod_specs() -> list[dict[str, Any]]:
    return [item["spec"]["template"]["spec"] for item in of_kind("Deployment", "StatefulSet")]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_image_has_every_package_that_the_agents_packages_need() -> None:
    wanted, found = list(ROOTS), set[str]()
    while wanted:
        name = canonical(wanted.pop())
        if name not in found:
            found.add(name)
            reported = [Requirement(text) for text in requires(name) or []]
            environment = {"extra": "", "sys_platform": "linux", "platform_system": "Linux"}
            wanted += [item.name for item in reported if item.marker is None or item.marker.evaluate(environment)]
    assert sorted(found) == PACKAGES


def test_every_package_is_locked_with_its_hashes() -> None:
    lock = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    assert [name for name in PACKAGES if not re.search(rf"^{re.escape(name)}==\S+.*\\\n    --hash", lock, re.M)] == []


def test_the_lines_that_the_build_keeps_are_those_packages(tmp_path: Path) -> None:
    (program,) = re.findall(r"awk -F '==' '([^']*)'", DOCKERFILE)
    files = [str(PROJECT / "docker/agent-packages.txt"), str(PROJECT / "requirements.txt")]
    kept = subprocess.run(["awk", "-F", "==", program, *files], capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"^([a-z0-9-]+)==", kept, re.M)) == PACKAGES
    assert "--hash=sha256:" in kept
    assert "django" not in kept.lower()


def test_what_the_image_copies_is_let_into_the_build() -> None:
    lines = (PROJECT / "docker/agent.Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copies = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY") and "--from" not in line]
    sources = {source for words in copies for source in words}
    assert sources == allowed
    assert [source for source in sources if not (PROJECT / source).exists()] == []


def test_the_agents_run_where_django_and_the_database_are_not() -> None:
    """Every command is imported while everything that is not the agents' is hidden."""
    hidden = ("django", "rest_framework", "celery", "psycopg", "pandas", "pyarrow", "billing", "pricing")
    script = (
        f"import sys\nfor name in {hidden!r}: sys.modules[name] = None\n"
        "from metering.__main__ import COMMANDS, parser\nprint([name for name in COMMANDS if parser([name])])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(list(COMMANDS))


@pytest.mark.parametrize("spec", pod_specs(), ids=lambda spec: spec["containers"][0]["args"][0])
def test_pods_run_unprivileged_with_a_volume_for_their_state(spec: dict[str, Any]) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["image"] == "suanpan-agent:1.0.0"
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    paths = [argument.partition("=")[2] for argument in container["args"] if "=/" in argument]
    assert [path for path in paths if not any(f"{path}/".startswith(f"{mount}/") for mount in mounts)] == []
    assert [mount["name"] for mount in mounts.values() if not mount.get("readOnly")] == ["state"]


@pytest.mark.parametrize("spec", pod_specs(), ids=lambda spec: spec["containers"][0]["args"][0])
def test_arguments_are_those_that_the_command_takes(spec: dict[str, Any]) -> None:
    command, *arguments = spec["containers"][0]["args"]
    if command in COMMANDS:
        assert parser([command]).parse_args([command, *arguments]).command == command
    assert all(argument.startswith("--") for argument in arguments)


def test_the_agent_may_read_the_cluster_and_write_its_own_lease() -> None:
    (role,) = of_kind("ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == READING
    granted = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"pods", "nodes", "resourceclaims", "resourceslices"} <= granted
    assert not granted & {"*", "secrets", "configmaps", "events", "pods/exec", "pods/log"}
    assert not any("finalizers" in name for name in granted)
    (own,) = of_kind("Role")
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert own["rules"] == [
        {**lease, "resourceNames": ["gpu-agent"], "verbs": ["get", "update"]},
        {**lease, "verbs": ["create"]},  # the API server does not know the name of what is created
    ]
    accounts = {item["metadata"]["name"] for item in of_kind("ServiceAccount")}
    bound = {subject["name"] for item in of_kind("ClusterRoleBinding", "RoleBinding") for subject in item["subjects"]}
    assert bound == accounts == {spec["serviceAccountName"] for spec in pod_specs() if "serviceAccountName" in spec}


def test_what_needs_no_api_server_gets_no_token_for_it() -> None:
    without = [spec for spec in pod_specs() if "serviceAccountName" not in spec]
    assert [spec["automountServiceAccountToken"] for spec in without] == [False]
