"""Which of several agents speaks: a Lease. It saves load and no more; that two speak at once must be harmless, and is."""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from metering.k8s.api import Api, ApiError, RefusedError

CONFLICT: Final = 409
"""Another agent was faster."""
log = logging.getLogger(__name__)
LEASE_S: Final = 60


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    metadata: _Metadata = _Metadata()


class Leader:
    """A claim on the Lease `namespace/name` by `identity`."""

    def __init__(self, api: Api, *, namespace: str, name: str, identity: str) -> None:
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name, self._identity = namespace, name, identity
        self.leading = False

    def renew(self) -> bool:
        """Take or renew the Lease if nobody else holds it; whether this agent speaks now.

        Where the Lease cannot be asked for, the agent keeps the role it has: deaf is worse than double.
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
        now = self._api.clock.now()
        known = self._known()
        spec = known.spec if known else _Spec()
        if known and spec.holder_identity not in (None, "", self._identity) and _valid(spec, now):
            return False
        body = self._body(known, now)
        if known is None:
            self._api.send("POST", self._folder, body)
        else:
            self._api.send("PUT", f"{self._folder}/{self._name}", body)
        return True

    def _known(self) -> _Lease | None:
        try:
            return msgspec.json.decode(self._api.get(f"{self._folder}/{self._name}", {}), type=_Lease)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def _body(self, known: _Lease | None, now: datetime) -> Mapping[str, Any]:
        spec = known.spec if known else _Spec()
        taken = spec.holder_identity != self._identity
        metadata = {"name": self._name, "namespace": self._namespace}
        if known and known.metadata.resource_version:
            metadata["resourceVersion"] = known.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "leaseTransitions": (spec.lease_transitions or 0) + taken,
            },
        }  # fmt: skip


def _valid(spec: _Spec, now: datetime) -> bool:
    duration = timedelta(seconds=spec.lease_duration_seconds or LEASE_S)
    return spec.renew_time is not None and now < spec.renew_time + duration
