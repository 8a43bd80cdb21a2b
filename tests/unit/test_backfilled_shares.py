"""What series of kube-state-metrics cannot say of a shared card is unknown, never a whole card."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from metering.backfill.holds import BackfillError, Site, records_of
from metering.backfill.pods import PodSeries, add_pod_series, requesting_pods
from metering.backfill.scrapes import Scrapes
from metering.intervals import Interval
from metering.prometheus import Series

START = datetime(2026, 10, 20, 8, tzinfo=UTC)
WINDOW = Interval(START, START + timedelta(hours=1))
SCRAPED = [START + timedelta(seconds=30 * number) for number in range(121)]
SCRAPES = Scrapes([Series({"__name__": "kube_node_info", "node": "n-1"}, [(at, Decimal(1)) for at in SCRAPED])])


def backfilled(
    requests: dict[str, int], labels: dict[str, str], *, units: int = 8, namespace: str = "nlp"
) -> list[tuple[str, int, Decimal | None, str | None]]:
    """Resource, quantity, fraction and reason of a pod's records, on a node of so many units of nvidia.com/gpu."""
    pod = PodSeries("uid-1", namespace, "train", "n-1", seen=SCRAPED[:60], scheduled_at=START, requests={"train": requests})
    node = Series({"label_nvidia_com_gpu_product": "NVIDIA-H800", **labels}, [(START, Decimal(1))])
    site = Site("hq-1", {"n-1": node}, {}, {"n-1": {"nvidia.com/gpu": units}})
    return [
        (item.resource, item.quantity, item.device_fraction, item.share_unknown)
        for item in records_of(pod, SCRAPES, WINDOW, site)
    ]


def test_a_card_that_nobody_shares_is_whole() -> None:
    reported = backfilled({"nvidia.com/gpu": 2}, {"label_nvidia_com_gpu_count": "8"})
    assert reported == [("nvidia.com/gpu", 2, Decimal(1), None)]


@pytest.mark.parametrize(
    ("requests", "labels", "units"),
    [
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096}, {}, 80),  # a slice of HAMi: what it granted is in no series
        ({"nvidia.com/gpu": 1}, {"label_nvidia_com_gpu_count": "8"}, 80),  # ten units of each card, by no label
        ({"nvidia.com/gpu": 1}, {"label_kubernetes_azure_com_gpu_sharing_mode": "time-slicing"}, 8),
        ({"nvidia.com/gpu": 1}, {"label_nvidia_com_device_plugin_config": "shared"}, 8),
    ],
)
def test_a_slice_is_unknown_and_keeps_its_quantity(requests: dict[str, int], labels: dict[str, str], units: int) -> None:
    [(resource, quantity, fraction, why)] = backfilled(requests, labels, units=units)
    assert (resource, quantity, fraction) == ("nvidia.com/gpu", 1, None)
    assert why


def with_init(main: int, init: dict[str, tuple[int, str | None]]) -> int:
    """Units of a pod with init containers by name: what each asks for, and the restart policy that its series shows."""
    pod = PodSeries("uid-1", "nlp", "train", "n-1", seen=SCRAPED[:60], scheduled_at=START)
    requested = [("kube_pod_container_resource_requests", "main", main)]
    requested += [("kube_pod_init_container_resource_requests", name, count) for name, (count, _) in init.items()]
    asked = {"uid": "uid-1", "resource": "nvidia_com_gpu"}
    pods = requesting_pods(
        Series({**asked, "__name__": metric, "container": name}, [(START, Decimal(count))])
        for metric, name, count in requested
    )
    pod.requests, pod.init_requests = pods["uid-1"].requests, pods["uid-1"].init_requests
    shown = [
        Series({"__name__": "kube_pod_init_container_info", "uid": "uid-1", "container": name, "restart_policy": policy},
               [(START, Decimal(1))])
        for name, (_, policy) in init.items() if policy is not None
    ]  # fmt: skip
    add_pod_series({"uid-1": pod}, shown)
    site = Site("hq-1", {}, {"n-1": "NVIDIA-H800"})
    [record] = records_of(pod, SCRAPES, WINDOW, site)
    return record.quantity


def test_an_init_container_that_stays_as_a_sidecar_holds_its_devices_beside_the_others() -> None:
    assert with_init(2, {"check": (2, "")}) == 2
    assert with_init(2, {"proxy": (1, "Always")}) == 3
    assert with_init(2, {"data": (4, "")}) == 4
    assert with_init(2, {"data": (2, ""), "proxy": (1, "Always")}) == 3


@pytest.mark.parametrize(
    "init",
    [{"check": (2, None)}, {"data": (4, ""), "proxy": (1, "Always")}],
    ids=["whether it stays is not shown", "which of them begins first is not shown"],
)
def test_what_the_series_do_not_show_of_init_containers_is_nobodys_guess(init: dict[str, tuple[int, str | None]]) -> None:
    with pytest.raises(BackfillError, match="init containers"):
        with_init(2, init)


def test_gke_labels_are_read_as_the_agent_reads_them() -> None:
    labels = {
        "label_cloud_google_com_gke_gpu_sharing_strategy": "time-sharing",
        "label_cloud_google_com_gke_max_shared_clients_per_gpu": "4",
    }
    assert backfilled({"nvidia.com/gpu": 1}, labels) == [("nvidia.com/gpu", 1, Decimal("0.25"), None)]


def test_the_pod_by_which_kai_keeps_a_card_is_billed_to_nobody() -> None:
    with pytest.raises(BackfillError, match="which pods share the card of KAI"):
        backfilled({"nvidia.com/gpu": 1}, {}, namespace="kai-resource-reservation")


def shown(node: str, instance: str, first: int, last: int) -> Series:
    """A node that an instance of kube-state-metrics showed in so many minutes of the window, each half a minute."""
    found = [at for at in SCRAPED if START + timedelta(minutes=first) <= at < START + timedelta(minutes=last)]
    return Series({"__name__": "kube_node_info", "node": node, "instance": instance}, [(at, Decimal(1)) for at in found])


def test_an_instance_that_was_started_again_is_the_same_shard_and_another_one_is_not() -> None:
    again = Scrapes([shown("n-1", "a", 0, 20), shown("n-1", "b", 22, 60)])
    assert (len(again), again.watched(WINDOW)) == (1, [Interval(START, START + timedelta(minutes=59.5))])
    assert again.after(START + timedelta(minutes=19.5), ("", "a")) == START + timedelta(minutes=22)
    shards = Scrapes([shown("n-1", "a", 0, 60), shown("n-2", "b", 0, 20), shown("n-2", "b", 40, 60)])
    first, last, end = (START + timedelta(minutes=number) for number in (19.5, 40, 59.5))
    assert (len(shards), shards.watched(WINDOW)) == (2, [Interval(START, first), Interval(last, end)])
    assert shards.after(START + timedelta(minutes=19.5), ("", "b")) == START + timedelta(minutes=40)


def test_a_pod_of_an_instance_of_which_nothing_shows_when_it_was_scraped_is_no_guess() -> None:
    pod = PodSeries("uid-1", "nlp", "train", "n-1", ("ksm", "c"), seen=SCRAPED[:60], requests={"c": {"nvidia.com/gpu": 1}})
    with pytest.raises(BackfillError, match="nothing shows when kube-state-metrics at c was scraped"):
        records_of(pod, SCRAPES, WINDOW, Site("hq-1", {}, {"n-1": "NVIDIA-H800"}))


def test_an_extended_resource_that_nobody_knows_is_named_by_somebody_or_nothing_is_filled() -> None:
    asked = Series({"__name__": "kube_pod_container_resource_requests", "uid": "uid-1", "container": "c",
                    "resource": "example_com_gpu_core"}, [(START, Decimal(2))])  # fmt: skip

    def quantities(further: dict[str, str]) -> list[tuple[str, int, Decimal | None, str]]:
        pod = requesting_pods([asked], further)["uid-1"]
        pod.node, pod.seen = "n-1", SCRAPED[:60]
        site = Site("hq-1", {}, {"n-1": "NVIDIA-A100"}, {}, further)
        return [(item.resource, item.quantity, item.device_fraction, item.accelerator)
                for item in records_of(pod, SCRAPES, WINDOW, site)]  # fmt: skip

    with pytest.raises(BackfillError, match="example_com_gpu_core is unknown: name it with --resource"):
        quantities({})
    named = {"example.com/gpu-core": "NVIDIA-H800"}
    assert quantities(named) == [("example.com/gpu-core", 2, Decimal(1), "NVIDIA-H800")]
    assert requesting_pods([asked], {}, ["example.com/gpu-core"]) == {}
    rdma = Series({**asked.labels, "resource": "rdma_hca_shared_devices_a_b_c_d_e"}, asked.samples)
    assert requesting_pods([rdma])["uid-1"].unknown == set()


def refused_at(minutes: int, phase: str) -> list[tuple[datetime, datetime | None]]:
    """From when to when a pod held that was in a phase for so many minutes, until its node refused it."""
    lived, who = SCRAPED[: 2 * minutes], {"uid": "uid-1", "namespace": "nlp", "pod": "train"}
    pods = {"uid-1": PodSeries("uid-1", scheduled_at=START, requests={"train": {"nvidia.com/gpu": 8}})}
    failed = SCRAPED[2 * minutes : 2 * minutes + 10]
    add_pod_series(pods, [
        Series({**who, "__name__": "kube_pod_info", "node": "n-1"}, [(at, Decimal(1)) for at in lived + failed]),
        Series({**who, "__name__": "kube_pod_status_phase", "phase": phase}, [(at, Decimal(1)) for at in lived]),
        Series({**who, "__name__": "kube_pod_status_phase", "phase": "Failed"}, [(at, Decimal(1)) for at in failed]),
        Series({**who, "__name__": "kube_pod_status_reason", "reason": "NodeAffinity"}, [(at, Decimal(1)) for at in failed]),
    ])  # fmt: skip
    site = Site("hq-1", {}, {"*": "NVIDIA-H800"})
    return [(item.started_at, item.ended_at) for item in records_of(pods["uid-1"], SCRAPES, WINDOW, site)]


def test_a_pod_that_ran_and_is_refused_when_its_node_reboots_held_until_then() -> None:
    assert refused_at(30, "Running") == [(START, START + timedelta(minutes=30))]
    assert refused_at(1, "Pending") == []


@pytest.mark.parametrize("node", ["", None])
def test_a_pod_that_was_never_bound_held_nothing_and_one_that_no_series_shows_is_unknown(node: str | None) -> None:
    pods = {"uid-1": PodSeries("uid-1", scheduled_at=START, requests={"train": {"nvidia.com/gpu": 8}})}
    if node is not None:
        info = {"uid": "uid-1", "namespace": "nlp", "pod": "train", "__name__": "kube_pod_info", "node": node}
        add_pod_series(pods, [Series(info, [(at, Decimal(1)) for at in SCRAPED])])
        assert records_of(pods["uid-1"], SCRAPES, WINDOW, Site("hq-1", {}, {"*": "NVIDIA-H800"})) == []
        return
    with pytest.raises(BackfillError, match="pod uid-1: it asks for devices, and kube_pod_info does not show"):
        records_of(pods["uid-1"], SCRAPES, WINDOW, Site("hq-1", {}, {"*": "NVIDIA-H800"}))


@pytest.mark.parametrize(("label", "value", "stated"), [
    ("label_karpenter_sh_capacity_type", "spot", "spot"),
    ("label_eks_amazonaws_com_capacity_type", "ON_DEMAND", "on_demand"),  # camel case is written so
    ("label_kubernetes_io_os", "linux", None),
])  # fmt: skip
def test_a_backfill_states_the_capacity_type_that_series_show(label: str, value: str, stated: str | None) -> None:
    pod = PodSeries(
        "uid-1", "nlp", "train", "n-1", seen=SCRAPED[:60], scheduled_at=START, requests={"train": {"nvidia.com/gpu": 1}}
    )
    node = Series({"label_nvidia_com_gpu_product": "NVIDIA-H800", label: value}, [(START, Decimal(1))])
    [record] = records_of(pod, SCRAPES, WINDOW, Site("hq-1", {"n-1": node}, {}, {"n-1": {"nvidia.com/gpu": 8}}))
    assert record.capacity_type == stated
