"""Lease by which one of several agents reports. It saves load and no more: two that report at once must be harmless."""

import logging
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from metering.k8s.api import Api, ApiError, RefusedError

CONFLICT: Final = 409
"""Status of a write of the Lease that another agent overtook."""
log = logging.getLogger(__name__)
LEASE_S: Final = 60


class Leader:
    """Candidacy of `identity` for the Lease `namespace/name`."""

    def __init__(self, api: Api, *, namespace: str, name: str, identity: str) -> None:
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name, self._identity = namespace, name, identity
        self.leading = False

    def renew(self) -> bool:
        """Take or renew the Lease if no other agent holds it; return True if this agent reports now.

        While the Lease cannot be read, the agent keeps its role: a double report is harmless, a missing one is not.
        """
        try:
            self.leading = self._claim()
        except ApiError as error:
            faster = isinstance(error, RefusedError) and error.status == CONFLICT
            self.leading = self.leading and not faster
            if not faster:
                role = "goes on reporting" if self.leading else "reports nothing until it holds the lease"
                log.error("lease %s/%s: %s; this agent %s", self._namespace, self._name, error, role)
        return self.leading

    def _claim(self) -> bool:
        known, lease = self._lease()
        spec, now = lease["spec"], self._api.clock.now()  # after an answer, which corrects the clock
        holder = spec.get("holderIdentity")
        if holder not in (None, "", self._identity) and _valid(spec, now):
            return False
        spec |= {
            "holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + (holder != self._identity),
        }  # fmt: skip
        self._api.send("PUT" if known else "POST", f"{self._folder}/{self._name}" if known else self._folder, lease)
        return True

    def _lease(self) -> tuple[bool, dict[str, Any]]:
        """Return the Lease, or a new one, and True if it exists."""
        try:
            found: dict[str, Any] = msgspec.json.decode(self._api.get(f"{self._folder}/{self._name}", {}))
            return True, {**found, "spec": found.get("spec") or {}}
        except RefusedError as error:
            if error.status != 404:
                raise
        metadata = {"name": self._name, "namespace": self._namespace}
        return False, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def _valid(spec: dict[str, Any], now: datetime) -> bool:
    duration = timedelta(seconds=spec.get("leaseDurationSeconds") or LEASE_S)
    return bool(spec.get("renewTime")) and now < datetime.fromisoformat(spec["renewTime"]) + duration
