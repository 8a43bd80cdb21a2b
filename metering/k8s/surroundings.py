"""What stands beside a pod: labels and annotations of its namespace, and the queue of its PodGroup.

Asked for once, when a pod is first seen bound, because that description is kept. What cannot be read (no right, not
installed) is left out: who pays is decided by the namespace's name, which the pod itself tells.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from metering.k8s.api import Api, ApiError
from metering.k8s.description import Surroundings
from metering.k8s.objects import PodFacts

FRESH: Final = timedelta(minutes=10)
MOST_KEPT: Final = 10_000
GROUP_NAME: Final = "scheduling.k8s.io/group-name"


class _Metadata(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    queue: str | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class Lookup:
    """Asks the API server, and remembers the answer for ten minutes; `labels` of a namespace are passed on."""

    def __init__(self, api: Api, labels: tuple[str, ...], now: Callable[[], datetime]) -> None:
        self._api, self._labels, self._now = api, labels, now
        self._kept: dict[str, tuple[datetime, _Object]] = {}

    def __call__(self, facts: PodFacts) -> Surroundings:
        """What stands beside the pod."""
        volcano = facts.scheduler == "volcano"
        namespace = self._ask(f"/api/v1/namespaces/{facts.namespace}") if self._labels or volcano else _Object()
        group = facts.annotations.get(GROUP_NAME) if volcano else None
        folder = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{facts.namespace}/podgroups"
        queue = self._ask(f"{folder}/{group}").spec.queue if group else None
        return Surroundings(self._passed_on(namespace.metadata.labels or {}), namespace.metadata.annotations or {}, queue)

    def _passed_on(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {key: labels[key] for key in self._labels if key in labels}

    def _ask(self, path: str) -> _Object:
        known = self._kept.get(path)
        if known and self._now() - known[0] < FRESH:
            return known[1]
        try:
            found = msgspec.json.decode(self._api.get(path, {}), type=_Object)
        except (ApiError, msgspec.DecodeError):
            found = _Object()
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[path] = (self._now(), found)
        return found
