"""What series of kube-state-metrics cannot say of a shared card is unknown, never a whole card."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from metering.backfill.holds import BackfillError, Site, records_of
from metering.backfill.pods import PodSeries, Scrapes
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


def test_gke_labels_are_read_as_the_agent_reads_them() -> None:
    labels = {
        "label_cloud_google_com_gke_gpu_sharing_strategy": "time-sharing",
        "label_cloud_google_com_gke_max_shared_clients_per_gpu": "4",
    }
    assert backfilled({"nvidia.com/gpu": 1}, labels) == [("nvidia.com/gpu", 1, Decimal("0.25"), None)]


def test_the_pod_by_which_kai_keeps_a_card_is_billed_to_nobody() -> None:
    with pytest.raises(BackfillError, match="which pods share the card of KAI"):
        backfilled({"nvidia.com/gpu": 1}, {}, namespace="kai-resource-reservation")
