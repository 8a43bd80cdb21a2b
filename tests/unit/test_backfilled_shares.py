"""What series of kube-state-metrics cannot say of a shared card is unknown, never a whole card."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from metering.backfill.holds import BackfillError, Site, records_of
from metering.backfill.pods import PodSeries, Scrapes, add_pod_series, requesting_pods
from metering.intervals import Interval
from metering.prometheus import Series

START = datetime(2026, 10, 20, 8, tzinfo=UTC)
WINDOW = Interval(START, START + timedelta(hours=1))
SCRAPED = [START + timedelta(seconds=30 * number) for number in range(121)]
SCRAPES = Scrapes([Series({"node": "n-1"}, [(at, Decimal(1)) for at in SCRAPED])])


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
