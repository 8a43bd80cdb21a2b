"""PURE: times at which kube-state-metrics was scraped, shard by shard.

Several instances may share the objects of a cluster, by hash (`--total-shards`) or by node. An object that one of them does
not show may be gone, or be another's; so only its own scrapes show that it is gone, and only time in which all of them were
scraped was watched.

Instances that show the same object are one shard: a pair for availability, or one that was restarted. Objects that are
always there, nodes and namespaces, show which shards there are; for an instance that shows pods but neither of these, pods
of DaemonSets do.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from metering.intervals import Interval, union, without
from metering.prometheus import Series, workload_label

SCRAPE_METRICS: Final = ("kube_node_info", "kube_namespace_created")
SHARDS_METRIC: Final = "kube_state_metrics_total_shards"
"""Metric of kube-state-metrics' own telemetry: how many instances share the objects, as far as it is scraped."""
LASTING_PODS: Final = 'created_by_kind="DaemonSet"'
"""Matcher of series of kube_pod_info that every instance has if it shows pods at all."""
LONGEST_SCRAPE: Final = timedelta(minutes=5)
"""Longest distance of two scrapes between which time counts as watched."""

Target = tuple[str, str]
"""Job and instance that Prometheus scraped."""


def target_of(labels: Mapping[str, str]) -> Target:
    """Return the instance of kube-state-metrics behind a series."""
    return labels.get("job", ""), labels.get("instance", "")


class Scrapes:
    """Scrape times of each shard of kube-state-metrics, by its series of objects that are always there."""

    def __init__(self, series: Iterable[Series]) -> None:
        times: dict[Target, set[datetime]] = {}
        shard: dict[Target, Target] = {}
        first: dict[tuple[str, str], Target] = {}

        # Union-find: two targets that show one object are one shard.
        def root(target: Target) -> Target:
            while shard[target] != target:
                target = shard[target]
            return target

        for one in series:
            if not one.samples:
                continue
            target = target_of(one.labels)
            shard.setdefault(target, target)
            times.setdefault(target, set()).update(at for at, _ in one.samples)
            shard[root(first.setdefault(_object(one), target))] = root(target)
        shown: dict[Target, set[datetime]] = {}
        for target, at in times.items():
            shown.setdefault(root(target), set()).update(at)
        self._at = {number: sorted(found) for number, found in shown.items()}
        self._shard = {target: root(target) for target in times}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, target: object) -> bool:
        return target in self._shard

    def after(self, instant: datetime, target: Target) -> datetime | None:
        """Return the first scrape of a target's shard after an instant; None if there is none."""
        at = self._at[self._shard[target]]
        place = bisect_right(at, instant)
        return at[place] if place < len(at) else None

    def watched(self, window: Interval) -> list[Interval]:
        """Return the parts of the window in which scrapes of every shard followed each other closely."""
        left = [window] if self._at else []
        for at in self._at.values():
            near = union([Interval(first, second) for first, second in pairwise(at) if second - first <= LONGEST_SCRAPE])
            left = list(without(left, without([window], near)))
        return left


def _object(one: Series) -> tuple[str, str]:
    """Return the object of a series: a node, a namespace or a pod."""
    of_pod, of_namespace = "uid" in one.labels, one.name == SCRAPE_METRICS[1]
    label = "uid" if of_pod else "namespace" if of_namespace else "node"
    return one.name, workload_label(one.labels, label)
