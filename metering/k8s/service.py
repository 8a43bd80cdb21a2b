"""Process of the agent: streams and a delivery in threads, and one loop that writes.

Only the loop writes allocations; the streams pass it steps. Any failure of a thread ends the process: its state is on disk,
and starting again is the one way of recovery that is always exercised.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from metering.delivery import Delivery
from metering.k8s.agent import Agent
from metering.k8s.api import Api, ApiError, RefusedError
from metering.k8s.health import Health
from metering.k8s.leader import Leader
from metering.k8s.reconciliation import Scan, confirmed, scan
from metering.k8s.stream import CLAIMS, NODES, PODS, SLICES, Kind, Step, Stream, claim_kinds
from metering.k8s.volcano_queues import queue_difference
from metering.spool import Spool, open_state

log = logging.getLogger(__name__)
QUEUED_STEPS: Final = 8
STUCK_S: Final = 300.0
LEASE_RENEWAL_S: Final = 20.0
DISCOVERY_S: Final = 600.0
DISCOVERY_RETRY_S: Final = 20.0
NO_RIGHT: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between reports of news, reports of open allocations, and scans, and the time for a last flush."""

    report_s: float = 30.0
    refresh_s: float = 300.0
    scan_s: float = 3600.0
    flush_s: float = 20.0


class Service:
    """Runner of an agent until it is stopped. Each stream and the delivery have connections of their own."""

    def __init__(
        self,
        *,
        state: Path,
        make_agent: Callable[[Any], Agent],
        make_api: Callable[[], Api],
        endpoint: str,
        token: Callable[[], str],
        pace: Pace,
        leader: Leader | None = None,
    ) -> None:
        self._state, self._make_agent, self._make_api = state, make_agent, make_api
        self._endpoint, self._token, self._pace, self._leader = endpoint, token, pace, leader
        self._spread = random.Random()  # noqa: S311  (spreads waits, guards nothing)
        self._steps: queue.Queue[tuple[str, Step]] = queue.Queue(QUEUED_STEPS)
        self._failure: BaseException | None = None
        self._beat = time.monotonic()
        self._scan: Scan | None = None
        self._refusals: dict[str, ApiError] = {}
        self._next = dict.fromkeys(("report", "refresh", "lease"), 0.0) | {"scan": time.monotonic() + pace.scan_s}
        self.health = Health(lambda: time.monotonic() - self._beat < STUCK_S)

    def run(self, stop: threading.Event) -> None:
        """Meter until `stop`; then report and deliver for as long as `flush_s` allows.  Raises what ended a thread."""
        agent = self._make_agent(open_state(self._state))
        streams = {kind.name: self._stream(kind, agent.store.cursor(kind.name).version) for kind in (NODES, PODS)}
        for name, stream in streams.items():
            self._thread(partial(self._watch, name, stream, stop), stop)
        versions = {name: agent.store.cursor(name).version for name in (SLICES, CLAIMS)}
        self._thread(partial(self._follow_claims, versions, streams, stop), stop)
        delivering = self._thread(partial(self._deliver, stop), stop)
        api = self._make_api()
        while not stop.is_set():
            self._beat = time.monotonic()
            self._drain(agent, wait_s=0.2)
            self._duties(agent, api, streams)
        self._drain(agent)
        delivering.join()
        self._flush(agent)
        if agent.report(api.clock.now(), refresh=True):
            self._flush(agent)
        api.close()
        if self._failure is not None:
            raise self._failure

    def _stream(self, kind: Kind, version: str | None) -> Stream:
        return Stream(self._make_api(), kind, version=version, spread=self._spread)

    def _follow_claims(self, versions: dict[str, str | None], streams: dict[str, Stream], stop: threading.Event) -> None:
        """Watch claims as soon as the server serves them; a server without them is asked again every DISCOVERY_S."""
        api, wait_s = self._make_api(), 0.0
        while not stop.wait(wait_s):
            try:
                kinds = claim_kinds(api)
            except ApiError as error:
                log.warning("claims have to wait: %s", error)
                self._refusals["claims"], wait_s = error, DISCOVERY_RETRY_S
                continue
            if not kinds:
                wait_s = DISCOVERY_S
                continue
            self._refusals.clear()
            for kind in kinds:
                streams[kind.name] = stream = self._stream(kind, versions[kind.name])
                self._thread(partial(self._watch, kind.name, stream, stop), stop)
            break
        api.close()

    def _thread(self, work: Callable[[], None], stop: threading.Event) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                log.exception("a thread of the agent ended")
                self._failure = error
                stop.set()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _watch(self, name: str, stream: Stream, stop: threading.Event) -> None:
        def deliver(step: Step) -> None:
            while not stop.is_set():
                try:
                    self._steps.put((name, step), timeout=0.5)
                    return
                except queue.Full:
                    continue

        stream.run(deliver, stop.wait)

    def _deliver(self, stop: threading.Event) -> None:
        with closing(open_state(self._state)) as connection, self._delivery(Spool(connection)) as delivery:
            delivery.run(stop)

    def _delivery(self, spool: Spool) -> Delivery:
        return Delivery(spool, endpoint=self._endpoint, token=self._token)

    def _drain(self, agent: Agent, wait_s: float = 0.0) -> None:
        """Apply all queued steps; wait up to `wait_s` seconds for the first one."""
        while True:
            try:
                name, step = self._steps.get(timeout=wait_s)
            except queue.Empty:
                return
            agent.apply(name, step)
            wait_s = 0.0

    def _due(self, duty: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next[duty]:
            return False
        self._next[duty] = now + every_s
        return True

    def _duties(self, agent: Agent, api: Api, streams: dict[str, Stream]) -> None:
        leading = self._leader is None or self._leader.leading
        if self._leader is not None and self._due("lease", LEASE_RENEWAL_S):
            leading = self._leader.renew()
        self._reconcile(agent, api, streams)
        if self._due("report", self._pace.report_s):
            refresh = time.monotonic() >= self._next["refresh"]
            if leading and agent.report(api.clock.now(), refresh=refresh) is not None and refresh:
                self._next["refresh"] = time.monotonic() + self._pace.refresh_s
            self._report_health(agent, streams, api.clock.now(), leading=leading)

    def _reconcile(self, agent: Agent, api: Api, streams: dict[str, Stream]) -> None:
        """Scan when it is due; judge the last scan when the watch has passed it; list again if events were lost."""
        if self._scan is None and self._due("scan", self._pace.scan_s):
            try:
                self._scan = scan(api, agent.scope, agent.store)
            except ApiError as error:
                log.warning("the scan has to wait: %s", error)
                return
            agent.listed_unreadable(self._scan.unreadable, self._scan.at)
            self._compare_queues(agent, api)
        if self._scan is None:
            return
        difference = confirmed(self._scan, agent.store, agent.scope)
        if difference is None:
            return
        self._scan = None
        agent.scanned(difference)
        self.health.set(reconciliation_difference=difference.pods)
        if difference.pods:
            log.error("the scan found %d pods that the watch does not know as they are: %s", difference.pods, difference)
            streams["pods"].list_next()

    def _compare_queues(self, agent: Agent, api: Api) -> None:
        try:
            differing = queue_difference(api, agent.store, agent.scope)
        except ApiError as error:
            log.warning("queues of Volcano have to wait: %s", error)
            return
        for (name, resource), (held, reported) in (differing or {}).items():
            log.warning("queue %s: %d of %s are held, Volcano says %d", name, held, resource, reported)
        self.health.set(queue_difference=sum(abs(held - reported) for held, reported in (differing or {}).values()))

    def _report_health(self, agent: Agent, streams: dict[str, Stream], now: datetime, *, leading: bool) -> None:
        # A copy: the thread that discovers claims adds streams meanwhile.
        errors = {name: stream.error for name, stream in list(streams.items())} | self._refusals
        for name, error in errors.items():
            if isinstance(error, RefusedError) and error.status in NO_RIGHT:
                agent.refused(name, error, now)
        open_holds, kept, dirty = agent.store.counts()
        synced_at = agent.store.cursor("pods").synced_at
        oldest = agent.spool.oldest()
        self.health.ready, self.health.standby = synced_at is not None, not leading
        self.health.set(
            open_holds=open_holds, kept_holds=kept, unreported_holds=dirty, spool_bytes=agent.spool.bytes,
            spool_full=agent.spool_full, oldest_parcel_age_seconds=time.time() - oldest.put_at if oldest else 0,
            watermark_timestamp_seconds=synced_at.timestamp() if synced_at else 0, lists=streams["pods"].relists,
            unknown_resources=len(agent.store.unknown_resources()), unreadable_objects=len(agent.store.problems()),
            leading=leading,
        )  # fmt: skip

    def _flush(self, agent: Agent) -> None:
        with self._delivery(agent.spool) as delivery:
            if not delivery.flush(seconds=self._pace.flush_s):
                log.warning("%d bytes wait in the state for the next start", agent.spool.bytes)
