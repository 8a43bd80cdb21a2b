"""Stories of pods, from the API server over HTTP to what the platform holds. Seconds were computed by hand."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from metering.k8s.description import Scope
from tests.agent.cluster import stamp
from tests.agent.rig import Rig, rig


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite") as made:
        made.cluster.add_node("n-1")
        yield made


def test_a_thirty_second_pod_is_thirty_seconds(here: Rig) -> None:
    here.settle()
    here.cluster.create("u", gpus=4)
    here.cluster.advance(7)
    here.cluster.bind("u")
    here.cluster.advance(12)
    here.cluster.run("u")
    here.cluster.advance(18)
    here.cluster.finish("u")
    here.cluster.advance(60)
    here.report()
    reported = here.platform.hold("u")
    assert here.platform.seconds("u") == 30
    assert (reported["quantity"], reported["accelerator"], reported["node"]) == (4, "NVIDIA-H800", "n-1")
    assert (reported["end_rule"], reported["end_reason"], reported["end_estimated"]) == ("finishedAt", "completed", False)


def test_a_pod_of_a_node_whose_clock_is_an_hour_behind_is_billed_from_its_creation(here: Rig) -> None:
    """It was created with its node, so the node stamped all its times: 3600 s to 1800 s before it was there."""
    here.settle()
    here.cluster.create("u", gpus=8, nodeName="n-1")
    behind = stamp(here.cluster.now - timedelta(hours=1))
    pod = here.cluster.pod("u")
    pod["status"] |= {"phase": "Running", "startTime": behind}
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": behind}]
    here.cluster.put("pods", pod)
    here.cluster.advance(1800)
    here.cluster.finish("u", finished_at=here.cluster.now - timedelta(hours=1))
    here.report()
    reported = here.platform.hold("u")
    assert (reported["started_at"], here.platform.seconds("u")) == ("2026-10-10T10:00:00Z", 1800)
    assert (reported["end_rule"], reported["end_estimated"]) == ("terminal phase seen", True)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down."),
        ("Evicted", "Pod was rejected: The node had condition: [DiskPressure]. "),
    ],
)
def test_a_pod_that_was_turned_away_while_the_agent_was_away_is_no_time(here: Rig, reason: str, message: str) -> None:
    """Its object stays for days: what is billed must not depend on when somebody looks."""
    here.settle()
    here.kill()
    here.cluster.launch("u", gpus=8)
    here.cluster.advance(1)
    pod = here.cluster.pod("u")
    pod["status"] |= {"phase": "Failed", "reason": reason, "message": message}
    here.cluster.put("pods", pod)
    here.cluster.advance(3 * 86400)
    here.start()
    here.report()
    assert (here.platform.seconds("u"), here.platform.hold("u")["end_reason"]) == (0, "admission failed")


@pytest.mark.parametrize("watched", [True, False])
def test_a_pod_of_a_lost_node_that_is_deleted_by_force_was_lost_with_its_node(here: Rig, watched: bool) -> None:
    here.settle()
    here.cluster.launch("u", gpus=8)
    here.cluster.run("u")
    here.watch()
    here.cluster.advance(400)
    pod = here.cluster.pod("u")
    pod["status"] |= {"reason": "NodeLost", "message": "Node n-1 which was running pod u is unresponsive"}
    here.cluster.put("pods", pod)
    here.watch()
    if not watched:
        here.kill()
    here.cluster.advance(200)
    here.cluster.force("u")
    if not watched:
        here.cluster.compact()
        here.start()
        here.settle()
    here.report()
    assert (here.platform.hold("u")["end_reason"], here.platform.seconds("u")) == ("node lost", 600)


def test_nothing_running_is_reported_with_a_watermark_and_an_outage_costs_no_reports(here: Rig) -> None:
    here.settle()
    here.deliver()
    assert (here.platform.holds, here.platform.watermark) == ({}, "2026-10-10T10:00:00Z")
    here.platform.down = True
    here.cluster.advance(600)
    here.cluster.launch("u")
    for _ in range(20):
        here.cluster.advance(60)
        here.report()
    assert len(here.agent.spool) <= 2
    here.platform.down = False
    here.deliver()
    here.deliver()
    assert here.platform.seconds("u") == 1200
    assert here.platform.watermark == "2026-10-10T10:30:00Z"


def test_a_closed_hold_stays_closed_and_a_name_is_no_identity(here: Rig) -> None:
    here.settle()
    here.cluster.launch("u", name="job-worker-0")
    here.cluster.run("u")
    here.cluster.advance(50)
    here.cluster.finish("u")
    here.watch()
    here.cluster.advance(50)
    here.cluster.finish("u", "Failed", lost=True)
    here.watch()
    here.cluster.delete("u")
    here.cluster.launch("v", name="job-worker-0")
    here.cluster.advance(5)
    here.report()
    assert (here.platform.seconds("u"), here.platform.seconds("v")) == (50, 5)
    assert here.platform.hold("u")["end_reason"] == "completed"


def test_capacity_follows_cordon_and_removal(here: Rig) -> None:
    here.settle()
    here.cluster.advance(100)
    node = here.cluster.objects["nodes"]["node-n-1"]
    node["spec"]["unschedulable"] = True
    here.cluster.put("nodes", node)
    here.watch()
    here.cluster.advance(100)
    here.cluster.remove("nodes", "node-n-1")
    here.watch()
    here.cluster.advance(100)
    here.report()
    reported = [(r["from"], r["until"], r["quantity"], r.get("condition")) for r in here.platform.capacity.values()]
    assert reported == [
        ("2026-10-10T10:00:00Z", "2026-10-10T10:01:40Z", 8, None),
        ("2026-10-10T10:01:40Z", "2026-10-10T10:03:20Z", 8, "cordoned"),
    ]


def test_the_time_in_which_a_node_is_dark_is_kept_though_its_pods_go_on_holding(here: Rig) -> None:
    """The node controller turns Ready to Unknown after 100 s, and back 200 s later; the pod has held all the while."""
    here.cluster.launch("u")
    here.cluster.run("u")
    here.settle()
    for wait_s, status in ((100, "Unknown"), (200, "True"), (50, None)):
        here.cluster.advance(wait_s)
        if status:
            node = here.cluster.objects["nodes"]["node-n-1"]
            node["status"]["conditions"][0] |= {"status": status, "lastTransitionTime": stamp(here.cluster.now)}
            here.cluster.put("nodes", node)
        here.watch()
    here.deliver()
    reported = [(r["from"], r["until"], r["quantity"], r.get("condition")) for r in here.platform.capacity.values()]
    assert reported == [
        ("2026-10-10T10:00:00Z", "2026-10-10T10:01:40Z", 8, None),
        ("2026-10-10T10:01:40Z", "2026-10-10T10:05:00Z", 8, "unknown"),
        ("2026-10-10T10:05:00Z", "2026-10-10T10:05:50Z", 8, None),
    ]
    assert here.platform.seconds("u") == 350


def test_chips_that_a_node_offers_under_three_names_are_its_capacity_once(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite") as made:
        node = made.cluster.add_node("n-1", **{"node.kubernetes.io/instance-type": "trn1.32xlarge"})
        for place in ("capacity", "allocatable"):
            node["status"][place] = {"aws.amazon.com/neuroncore": "32", "aws.amazon.com/neuron": "16",
                                     "aws.amazon.com/neurondevice": "16", "cpu": "64"}  # fmt: skip
        made.cluster.put("nodes", node)
        made.settle()
        made.cluster.advance(10)
        made.report()
        reported = {(item["resource"], item["quantity"]) for item in made.platform.capacity.values()}
        assert reported == {("aws.amazon.com/neuron", 16)}


def test_values_of_the_environment_and_foreign_annotations_are_neither_kept_nor_reported(here: Rig) -> None:
    """A list of pods shows the API server's readers every value in a spec; what is written is what is billed."""
    secret = "hunter2-of-the-environment"
    containers = [{"name": "c", "image": "x", "command": [secret], "env": [{"name": "TOKEN", "value": secret}],
                   "resources": {"limits": {"nvidia.com/gpu": "1"}}}]  # fmt: skip
    here.cluster.create("u", containers=containers)
    pod = here.cluster.pod("u")
    pod["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": containers}),
        "example.com/note": secret, "volcano.sh/queue-name": "research",
    }  # fmt: skip
    here.cluster.put("pods", pod)
    here.cluster.bind("u")
    here.settle()
    here.deliver()
    assert here.platform.hold("u")["queue"] == "research"
    kept = b"".join(path.read_bytes() for path in here.state.parent.iterdir())
    assert b"research" in kept
    assert secret.encode() not in kept
    assert secret not in json.dumps(list(here.platform.holds.values()))


def test_a_relabelled_node_does_not_change_what_a_pod_was_bound_to(here: Rig) -> None:
    here.settle()
    here.cluster.launch("u")
    here.watch()
    node = here.cluster.objects["nodes"]["node-n-1"]
    node["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100"
    here.cluster.put("nodes", node)
    here.cluster.advance(30)
    here.cluster.finish("u")
    here.report()
    assert here.platform.hold("u")["accelerator"] == "NVIDIA-H800"


def test_a_pod_on_a_node_that_has_just_come_waits_for_how_its_cards_are_shared(here: Rig) -> None:
    """Eight cards, ten pods on each: the plugin offers 80 units first, and feature discovery explains them 40 s later.

    Of a node that nobody explains a pod is reported two minutes after it was bound: of how much of a card nobody knows, and
    how many cards it has neither.
    """
    bare = [here.cluster.add_node(name, gpus=80) for name in ("fresh", "plain")]
    for node in bare:
        node["metadata"]["labels"].clear()
        here.cluster.put("nodes", node)
    here.settle()
    for uid, node_name in (("u", "fresh"), ("short", "fresh"), ("v", "plain")):
        here.cluster.create(uid)
        here.cluster.bind(uid, node_name)
    here.cluster.advance(20)
    here.cluster.finish("short")
    here.report()
    assert here.platform.holds == {}
    assert here.platform.watermark == "2026-10-10T10:00:00Z"
    assert [node for node, _, _ in here.platform.capacity] == ["n-1"]
    bare[0]["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": "NVIDIA-H800-SHARED", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "10",
    }  # fmt: skip
    here.cluster.put("nodes", bare[0])
    here.cluster.advance(20)
    here.report()
    shown = {uid: (here.platform.hold(uid)["device_fraction"], here.platform.seconds(uid)) for uid in ("u", "short")}
    assert shown == {"u": ("0.1", 40), "short": ("0.1", 20)}
    assert here.platform.hold("u")["accelerator"] == "NVIDIA-H800"
    here.cluster.advance(100)
    here.report()
    assert (here.platform.hold("v")["accelerator"], here.platform.seconds("v")) == ("unknown", 140)
    why = "no label of the node says how many cards its units are, nor how they are shared"
    assert (here.platform.hold("v")["device_fraction"], here.platform.hold("v")["share_unknown"]) == (None, why)
    capacity = here.platform.capacity.items()
    offered = {node: (row["accelerator"], row["quantity"], row["from"]) for (node, _, _), row in capacity}
    start = "2026-10-10T10:00:00Z"
    assert offered == {
        "n-1": ("NVIDIA-H800", 8, start), "fresh": ("NVIDIA-H800", 8, start),
    }  # fmt: skip
    assert (len(capacity), here.platform.conflicts) == (2, [])


@pytest.mark.parametrize(
    ("labels", "units", "fraction", "cards"),
    [
        # NVIDIA/k8s-device-plugin issue 461, aws/karpenter issue 729: time-slicing without feature discovery
        ({"karpenter.k8s.aws/instance-gpu-name": "t4", "karpenter.k8s.aws/instance-gpu-count": "1"}, 10, "0.1", 1),
        ({"eks.amazonaws.com/instance-gpu-name": "l4", "eks.amazonaws.com/instance-gpu-count": "4"}, 16, "0.25", 4),
        ({"karpenter.k8s.aws/instance-gpu-name": "h100", "karpenter.k8s.aws/instance-gpu-count": "8"}, 8, "1", 8),
        ({"node.kubernetes.io/instance-type": "g5.xlarge"}, 4, "0.25", 1),  # Bottlerocket, shared by its settings
        ({"node.kubernetes.io/instance-type": "g5.12xlarge"}, 4, "1", 4),
        # AKS, GPU instance profiles: seven slices of each card
        ({"node.kubernetes.io/instance-type": "Standard_ND96asr_v4", "kubernetes.azure.com/accelerator": "nvidia"}, 56,
         "0.142857142857", 8),
        ({"node.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4"}, 1, "1", 1),
        # 3g of MIG, or halves of the time: nobody says
        ({"node.kubernetes.io/instance-type": "Standard_ND96asr_v4"}, 16, None, None),
        ({"karpenter.k8s.aws/instance-gpu-name": "t4", "karpenter.k8s.aws/instance-gpu-count": "4"}, 10, None, None),
        ({"karpenter.k8s.aws/instance-gpu-name": "t4", "karpenter.k8s.aws/instance-gpu-count": "some"}, 4, None, None),
        ({"node.kubernetes.io/instance-type": "Standard_NV6ads_A10_v5"}, 1, None, None),  # a sixth of a card
        ({"kubernetes.azure.com/accelerator": "nvidia"}, 8, None, None),
        ({}, 8, None, None),
    ],
)  # fmt: skip
def test_units_of_a_node_without_feature_discovery_are_parts_of_the_cards_that_its_cloud_states(
    here: Rig, labels: dict[str, str], units: int, fraction: str | None, cards: int | None
) -> None:
    node = here.cluster.add_node("n-2", gpus=units)
    node["metadata"]["labels"] = labels
    here.cluster.put("nodes", node)
    here.settle()
    here.cluster.create("u")
    here.cluster.bind("u", "n-2")
    here.cluster.advance(130)
    here.report()
    assert here.platform.hold("u")["device_fraction"] == fraction
    offered = [row["quantity"] for (name, _, _), row in here.platform.capacity.items() if name == "n-2"]
    assert offered == ([cards] if cards else [])


def test_a_resource_that_nobody_knows_is_reported_and_not_ignored(here: Rig) -> None:
    resources = {"resources": {"limits": {"example.com/fpga": "2"}}}
    here.cluster.launch("u", gpus=0, containers=[{"name": "c", **resources}])
    here.settle()
    here.cluster.advance(30)
    here.cluster.finish("u")
    here.report()
    [reported] = here.platform.holds.values()
    assert (reported["resource"], reported["quantity"], reported["device_fraction"]) == ("example.com/fpga", 2, None)
    assert reported["share_unknown"] == "an extended resource that nobody knows"
    assert (reported["started_at"], reported["ended_at"]) == ("2026-10-10T10:00:00Z", "2026-10-10T10:00:30Z")
    assert here.platform.agent["unknown_resources"] == {"example.com/fpga": 2}


def test_a_resource_that_is_declared_to_be_no_accelerator_is_not_metered_and_its_notice_ends(tmp_path: Path) -> None:
    limits = {"nvidia.com/gpu": "1", "example.com/nic": "1"}
    with rig(tmp_path / "agent.sqlite") as made:
        made.cluster.add_node("n-1")
        made.cluster.launch("u", containers=[{"name": "c", "resources": {"limits": limits}}])
        made.settle()
        made.deliver()
        assert made.platform.agent["unknown_resources"] == {"example.com/nic": 1}
        made.options["scope"] = Scope("hq-1", no_accelerators=frozenset({"example.com/nic"}))
        made.restart()
        made.cluster.launch("v", containers=[{"name": "c", "resources": {"limits": limits}}])
        made.report()
        assert [item["resource"] for item in made.platform.holds.values() if item["pod"] == "v"] == ["nvidia.com/gpu"]
        assert "unknown_resources" not in made.platform.agent
        assert made.platform.agent["no_accelerators"] == ["example.com/nic"]


def kai_pod(
    here: Rig, uid: str, namespace: str, gpus: int, scheduler: str = "kai-scheduler", **annotations: str
) -> None:
    pod = here.cluster.create(uid, gpus=gpus, namespace=namespace, schedulerName=scheduler)
    pod["metadata"]["annotations"] = {name.replace("_", "-"): value for name, value in annotations.items()}
    pod["metadata"]["labels"] = {"runai-gpu-group": "group-1"}
    here.cluster.put("pods", pod)
    here.cluster.bind(uid)


def test_a_share_of_kai_is_its_users_and_the_pod_that_reserves_the_card_is_nobodys(here: Rig) -> None:
    """Two pods of a half and a quarter share the card that a pod in kai-resource-reservation keeps for them."""
    kai_pod(here, "reserve", "kai-resource-reservation", 1)
    kai_pod(here, "half", "nlp", 0, gpu_fraction="0.5")
    kai_pod(here, "quarter", "cv", 0, gpu_fraction="0.25")
    here.settle()
    here.deliver()
    held = {item["pod"]: (item["namespace"], item["quantity"], item["device_fraction"], item["accelerator"])
            for item in here.platform.holds.values()}  # fmt: skip
    assert held == {"half": ("nlp", 1, "0.5", "NVIDIA-H800"), "quarter": ("cv", 1, "0.25", "NVIDIA-H800")}


def test_annotations_of_kai_are_those_of_pods_that_it_placed_and_gave_a_share(here: Rig) -> None:
    """A pod with a whole card has no share beside it, and one that KAI did not place has none at all."""
    kai_pod(here, "left over", "nlp", 1, gpu_fraction="0.5")
    kai_pod(here, "memory", "nlp", 2, gpu_memory="4096")
    kai_pod(here, "placed by another", "nlp", 1, "default-scheduler", gpu_fraction="0.5")
    kai_pod(here, "nobody's", "nlp", 0, "default-scheduler", gpu_fraction="0.5")
    kai_pod(here, "run:ai", "nlp", 0, "runai-scheduler", gpu_fraction="0.5")
    here.settle()
    here.deliver()
    held = {item["pod"]: (item["resource"], item["quantity"], item["device_fraction"])
            for item in here.platform.holds.values()}  # fmt: skip
    assert held == {
        "left over": ("nvidia.com/gpu", 1, "1"), "memory": ("nvidia.com/gpu", 2, "1"),
        "placed by another": ("nvidia.com/gpu", 1, "1"), "run:ai": ("kai.scheduler/gpu-share", 1, "0.5"),
    }  # fmt: skip
    assert len(here.platform.holds) == 4


def test_a_share_that_names_its_container_is_a_share_of_kai(here: Rig) -> None:
    """20 GiB of a card of 80 GiB is a quarter."""
    here.cluster.add_node("n-1", **{"nvidia.com/gpu.memory": "81920"})
    kai_pod(here, "reserve", "kai-resource-reservation", 1)
    pod = here.cluster.create("u", gpus=0, schedulerName="kai-scheduler")
    pod["metadata"]["annotations"] = {"nvidia.com/container.main.gpu-memory.request": "20Gi"}
    pod["metadata"]["labels"] = {"runai-gpu-group": "group-1"}
    here.cluster.put("pods", pod)
    here.cluster.bind("u")
    here.settle()
    here.cluster.advance(60)
    here.report()
    reported = here.platform.hold("u")
    held = (reported["resource"], reported["quantity"], reported["device_fraction"])
    assert held == ("kai.scheduler/gpu-share", 1, "0.25")
    assert (here.platform.seconds("u"), here.platform.problems) == (60, set())


@pytest.mark.parametrize("label", ["runai-gpu-group", "runai-gpu-group/group-1"])
@pytest.mark.parametrize("scheduler", ["kai-scheduler", "kai-of-ours"])
def test_a_pod_that_shares_a_card_in_a_way_nobody_knows_is_a_problem(here: Rig, label: str, scheduler: str) -> None:
    pod = here.cluster.create("u", gpus=0, schedulerName=scheduler)
    pod["metadata"]["annotations"] = {"kai.scheduler/next-dialect": "a quarter"}
    pod["metadata"]["labels"] = {label: "group-1"}
    here.cluster.put("pods", pod)
    here.settle()
    here.deliver()
    assert "problems" not in here.platform.agent  # it is not bound
    here.cluster.bind("u")
    here.report()
    assert here.platform.holds == {}
    assert here.platform.agent["problems"] == {
        "pod nlp/u (u), 2026-10": "cannot be read: it shares a card (runai-gpu-group), and nothing on it that is understood "
        "says how much of it"
    }


def test_a_card_that_kai_keeps_for_pods_that_nobody_meters_is_a_problem(here: Rig) -> None:
    """Whatever way of asking for a share comes next: the hourly list shows for whom a card is kept."""
    for uid, group in (("reserve-1", "group-1"), ("reserve-2", "group-2")):
        pod = here.cluster.create(uid, namespace="kai-resource-reservation", schedulerName="default-scheduler")
        pod["metadata"]["labels"] = {"runai-gpu-group": group}
        here.cluster.put("pods", pod)
        here.cluster.bind(uid)
    kai_pod(here, "half", "nlp", 0, gpu_fraction="0.5")  # of group-1
    here.settle()
    here.scan()
    here.deliver()
    assert "problems" not in here.platform.agent  # who shares it may still come
    here.cluster.advance(121)
    here.watch()
    here.scan()
    here.report()
    text = "KAI keeps a card for group-2, of which no pod is metered"
    assert here.platform.agent["problems"] == {"pod kai-resource-reservation/reserve-2 (reserve-2), 2026-10": text}


def test_only_the_pods_of_kai_itself_are_left_out(here: Rig) -> None:
    """The label alone frees nobody of paying: a user may write it on any pod."""
    kai_pod(here, "clever", "nlp", 2)
    here.settle()
    here.deliver()
    assert (here.platform.hold("clever")["quantity"], here.platform.hold("clever")["device_fraction"]) == (2, "1")


def test_a_share_that_was_unknown_is_reported_once_it_is_known(here: Rig) -> None:
    """HAMi's list of a node came after the pod: the report that follows names the share."""
    pod = here.cluster.create("u", schedulerName="hami-scheduler")
    pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "u1,NVIDIA,20480,0:;"}
    here.cluster.put("pods", pod)
    here.cluster.bind("u")
    here.settle()
    here.deliver()
    assert here.platform.hold("u")["device_fraction"] is None
    here.platform.holds.clear()
    node = here.cluster.objects["nodes"]["node-n-1"]
    listed = '[{"id": "u1", "count": 10, "devmem": 81920, "devcore": 100, "health": true}]'
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": listed, "hami.io/node-handshake": "Reported now"}
    here.cluster.put("nodes", node)
    here.cluster.advance(30)
    here.watch()
    here.cluster.finish("u")
    here.report()
    assert (here.platform.hold("u")["device_fraction"], here.platform.seconds("u")) == ("0.25", 30)
    assert [(name, row.quantity) for name, row in here.agent.store.open_capacity("n-1").items()] == [("nvidia.com/gpu", 1)]


def hami_container(name: str, memory_mib: int, **more: str) -> dict[str, object]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib)}}, **more}


def test_init_containers_of_hami_hold_their_peak_and_blank_slots_nothing(here: Rig) -> None:
    """Three init containers of 10 GiB run one after the other, then one of 20 GiB: a quarter of 80 GiB. A sidecar stays."""
    here.cluster.add_node("n-1", gpus=10, **{"nvidia.com/gpu.memory": "81920"})
    stories = {
        "job": ([hami_container(f"load-{n}", 10_240) for n in range(3)], [hami_container("train", 20_480)],
                ";".join(["GPU-1,NVIDIA,10240,0:"] * 3) + ";GPU-1,NVIDIA,20480,0:;"),
        "web": ([hami_container("cache", 10_240, restartPolicy="Always")], [hami_container("serve", 20_480)],
                "GPU-1,NVIDIA,10240,0:;GPU-1,NVIDIA,20480,0:;"),
        "blank": ([{"name": "fetch"}], [hami_container("serve", 20_480), {"name": "proxy"}],
                  ";GPU-1,NVIDIA,20480,0:;,,0,0:;"),
    }  # fmt: skip
    for uid, (init, main, granted) in stories.items():
        pod = here.cluster.create(uid, containers=main, initContainers=init, schedulerName="hami-scheduler")
        pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": granted}
        here.cluster.put("pods", pod)
        here.cluster.bind(uid)
    here.settle()
    here.deliver()
    held = {uid: (here.platform.hold(uid)["quantity"], here.platform.hold(uid)["device_fraction"]) for uid in stories}
    assert held == {"job": (1, "0.25"), "web": (2, "0.1875"), "blank": (1, "0.25")}


def test_a_renamed_resource_goes_by_its_name_in_the_table(tmp_path: Path) -> None:
    """HAMi under names of its own (volcano-sh/volcano issue 3925): 20 GiB of a card of 80 GiB, of two cards."""
    scope = Scope("hq-1", aliases={"nvidia.com/vgpu": "nvidia.com/gpu", "nvidia.com/vgpumem": "nvidia.com/gpumem"})
    with rig(tmp_path / "agent.sqlite", scope=scope) as made:
        node = made.cluster.add_node("n-1")
        listed = [{"id": uuid, "count": 10, "devmem": 81_920, "devcore": 100, "health": True} for uuid in ("u1", "u2")]
        node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(listed)}
        node["status"]["capacity"] = node["status"]["allocatable"] = {"nvidia.com/vgpu": "20"}
        made.cluster.put("nodes", node)
        limits = {"nvidia.com/vgpu": "1", "nvidia.com/vgpumem": "20480"}
        containers = [{"name": "c", "resources": {"limits": limits}}]
        pod = made.cluster.create("u", containers=containers, schedulerName="hami-scheduler")
        pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "u1,NVIDIA,20480,0:;"}
        made.cluster.put("pods", pod)
        made.cluster.bind("u")
        made.settle()
        made.cluster.advance(10)
        made.report()
        held = made.platform.hold("u")
        assert (held["resource"], held["quantity"], held["device_fraction"]) == ("nvidia.com/gpu", 1, "0.25")
        assert [(row["resource"], row["quantity"]) for row in made.platform.capacity.values()] == [("nvidia.com/gpu", 2)]
        assert "unknown_resources" not in made.platform.agent
        assert made.scan().holding == {"u": 1}


def test_a_configured_resource_counts(tmp_path: Path) -> None:
    """One unit is one device, of the given product, else of the node's type of machine."""
    asked = {"example.com/fpga": "2", "nvidia.com/new-thing": "1"}
    scope = Scope("hq-1", {"example.com/fpga": "F1", "nvidia.com/new-thing": ""})
    with rig(tmp_path / "agent.sqlite", scope=scope) as made:
        made.cluster.add_node("n-1", **{"node.kubernetes.io/instance-type": "xpu-8"})
        made.cluster.launch("u", gpus=0, containers=[{"name": "c", "resources": {"limits": asked}}])
        made.settle()
        made.cluster.advance(10)
        made.cluster.finish("u")
        made.report()
        reported = [(item["resource"], item["accelerator"], item["quantity"]) for item in made.platform.holds.values()]
        assert sorted(reported) == [("example.com/fpga", "F1", 2), ("nvidia.com/new-thing", "xpu-8", 1)]
        assert "unknown_resources" not in made.platform.agent


def test_a_full_disk_of_reports_is_an_alarm_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rig(tmp_path / "agent.sqlite", max_spool_bytes=100) as made:
        made.cluster.add_node("n-1")
        made.settle()
        made.cluster.launch("u")
        made.cluster.advance(30)
        made.cluster.finish("u")
        made.report()
        assert (made.agent.spool_full, made.platform.bodies) == (True, [])
        assert any(record.levelname == "CRITICAL" for record in caplog.records)
        made.options["max_spool_bytes"] = 1 << 20
        made.restart()
        made.report()
        assert (made.agent.spool_full, made.platform.seconds("u")) == (False, 30)


def test_an_agent_whose_clock_is_an_hour_off_reports_the_times_of_the_cluster(tmp_path: Path) -> None:
    for skew in (-3600, 3600):
        with rig(tmp_path / f"{skew}.sqlite", skew_s=skew) as made:
            made.cluster.add_node("n-1")
            made.settle()
            made.cluster.launch("u")
            made.cluster.advance(90)
            made.cluster.finish("u")
            made.report()
            assert made.platform.seconds("u") == 90
            assert made.platform.watermark == "2026-10-10T10:01:30Z"


def test_the_very_first_answer_already_corrects_the_clock(tmp_path: Path) -> None:
    """The list of pods is the first request of all, by an agent whose clock is an hour behind; the pod ended before it."""
    with rig(tmp_path / "agent.sqlite", skew_s=-3600) as made:
        made.cluster.launch("u")
        made.cluster.advance(90)
        made.cluster.finish("u")
        made.cluster.advance(600)
        for step in made.streams["pods"].steps():
            made.agent.apply("pods", step)
        made.settle()
        made.deliver()
        reported = made.platform.hold("u")
        assert (made.platform.seconds("u"), reported["end_rule"]) == (90, "finishedAt")


def test_many_pods_are_reported_in_several_bodies_and_only_the_last_says_how_far(
    here: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.k8s.agent.BODY_RECORDS", 2)
    for number in range(5):
        here.cluster.launch(f"u{number}")
    here.settle()
    here.deliver()
    sent = [json.loads(body) for path, body in here.platform.bodies if path.endswith("gpu-allocations")]
    assert [[record["pod_uid"] for record in body["allocations"]] for body in sent] == [["u0", "u1"], ["u2", "u3"], ["u4"]]
    assert [body.get("watermark") for body in sent] == [None, None, "2026-10-10T10:00:00Z"]


def test_all_pods_that_went_at_once_while_nobody_looked_are_ended_one_after_the_other(here: Rig) -> None:
    """What a list lacks is read pod by pod while it is changed: none is left out, and what stays is untouched."""
    here.settle()
    for number in range(7):
        here.cluster.launch(f"u{number}")
    here.settle()
    here.cluster.advance(30)
    for number in range(6):
        here.cluster.delete(f"u{number}")
    here.cluster.compact()
    here.cluster.advance(30)
    here.settle()
    here.deliver()
    ended = {uid: here.platform.hold(uid) for uid in (f"u{number}" for number in range(6))}
    assert {(item["end_rule"], item["end_estimated"]) for item in ended.values()} == {("absent from list", True)}
    assert here.platform.hold("u6")["ended_at"] is None
