"""PURE: when kube-state-metrics was scraped, shard by shard.

Several instances may share the objects of a cluster among them, each by itself (`--total-shards`), or by node. What one of
them does not show may be gone, or be another's; so only its own scrapes say that it is gone, and only time in which all of
them were scraped was watched.

Instances that show the same object are one shard: a pair for availability, or one that was started again. Which shards there
are shows by objects that are always there, nodes and namespaces; where pods are shown by an instance that has neither, by
pods of DaemonSets.
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
"""Of the telemetry of kube-state-metrics: how many instances share the objects, as far as it is scraped."""
LASTING_PODS: Final = 'created_by_kind="DaemonSet"'
"""Series of kube_pod_info that each instance has which shows pods at all."""
LONGEST_SCRAPE: Final = timedelta(minutes=5)
"""Scrapes further apart leave time in which nobody looked."""

Target = tuple[str, str]
"""Job and instance: what Prometheus scraped."""


def target_of(labels: Mapping[str, str]) -> Target:
    """The instance of kube-state-metrics behind a series."""
    return labels.get("job", ""), labels.get("instance", "")


class Scrapes:
    """When each shard of kube-state-metrics was scraped, by its series of objects that are always there."""

    def __init__(self, series: Iterable[Series]) -> None:
        times: dict[Target, set[datetime]] = {}
        shard: dict[Target, Target] = {}
        first: dict[tuple[str, str], Target] = {}

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
        """The first scrape after an instant of the shard of a target; None where there is none."""
        at = self._at[self._shard[target]]
        place = bisect_right(at, instant)
        return at[place] if place < len(at) else None

    def watched(self, window: Interval) -> list[Interval]:
        """The part of the window in which scrapes of every shard followed each other closely."""
        left = [window] if self._at else []
        for at in self._at.values():
            near = union([Interval(first, second) for first, second in pairwise(at) if second - first <= LONGEST_SCRAPE])
            left = list(without(left, without([window], near)))
        return left


def _object(one: Series) -> tuple[str, str]:
    """What a series is about: a node, a namespace or a pod."""
    of_pod, of_namespace = "uid" in one.labels, one.name == SCRAPE_METRICS[1]
    label = "uid" if of_pod else "namespace" if of_namespace else "node"
    return one.name, workload_label(one.labels, label)
