"""The manifests grant what the agent asks of the API server, and nothing else."""

from pathlib import Path
from urllib.parse import parse_qs, urlparse

import yaml

from metering.k8s.leader import Leader
from metering.k8s.surroundings import OWNERS, Lookup
from metering.k8s.volcano_queues import queue_difference
from tests.agent.rig import Rig, rig

MANIFEST = Path(__file__).resolve().parents[2] / "docker/k8s/suanpan-agent/manifests.yaml"
Right = tuple[str, str, str]
"""API group, resource, verb."""


def granted(kind: str) -> set[Right]:
    documents = [item for item in yaml.safe_load_all(MANIFEST.read_text()) if item and item["kind"] == kind]
    return {
        (group, resource, verb)
        for item in documents for rule in item["rules"]
        for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip


def needed(request: str) -> Right | None:
    """The right that a GET needs; none for the discovery of a group."""
    address = urlparse(request)
    words = address.path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    if not rest:
        return None
    named = rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest
    single = len(named) > 1
    return group, named[0], "get" if single else "watch" if "watch" in parse_qs(address.query) else "list"


def exercise(here: Rig) -> None:
    """Everything that makes the agent ask: lists, watches, a scan, claims, and what is beside Volcano pods of all owners."""
    here.settle()
    for (kind, group), path in OWNERS.items():
        uid = f"{kind}-{group}".lower()
        here.cluster.create(uid, schedulerName="volcano")
        item = here.cluster.pod(uid)
        item["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        version = "/".join(path.split("/")[:2])
        item["metadata"]["ownerReferences"] = [{"kind": kind, "name": "j", "uid": "1", "apiVersion": version}]
        here.cluster.put("pods", item)
        here.cluster.bind(uid)
    here.watch()
    here.scan()
    queue_difference(here.api, here.agent.store, here.agent.scope)


def test_what_is_granted_is_what_is_asked_for(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite", claims=True, look_around=lambda api: Lookup(api, (), api.clock.now)) as made:
        made.cluster.add_node("n-1")
        exercise(made)
        asked = {right for request in made.server.requests if (right := needed(request))}
    assert asked == granted("ClusterRole")


def test_the_only_thing_that_is_written_is_a_lease_of_its_own(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite") as made:
        leader = Leader(made.api, namespace="suanpan", name="agent", identity="one")
        assert leader.renew()
        assert leader.renew()
    assert granted("Role") == {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
