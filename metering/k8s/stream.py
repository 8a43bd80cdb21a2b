"""Stream of one kind of objects: list, then watch; list again when the server has lost the history.

Each step is complete in itself and names the version that it reaches; the caller stores that version together with the
step's effects, and goes on from there after a crash. So events that came twice or were read before a crash are read again,
and none is skipped.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from metering.claims import Claim
from metering.k8s.api import (
    Api,
    ApiError,
    RefusedError,
    ThrottledError,
    UnreachableError,
    VersionGoneError,
    VersionsWentBackError,
    error_of,
)
from metering.k8s.objects import (
    Complaint,
    ListMetadata,
    Node,
    Page,
    Pod,
    Slice,
    WatchEvent,
    api_group,
    complaint,
    failure_of,
    version_of,
    watch_event,
)

log = logging.getLogger(__name__)
PAGE: Final = 500
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
LONGEST_RETRY_AFTER_S: Final = 300.0
WATCH_S: Final = (240, 480)
"""Bounds in seconds between which the server ends a watch; spread, so that many streams do not reconnect at once."""


class Kind:
    """Kind of objects: its path, and its decoder."""

    def __init__(self, name: str, path: str, form: Any) -> None:
        page: Any = Page
        self.name, self.path = name, path
        self.decode = msgspec.json.Decoder(form).decode
        self._pages = msgspec.json.Decoder(page[form])

    def items(self, page: bytes) -> tuple[ListMetadata, list[Any], list[Complaint]]:
        """Decode a list page into metadata, items, and complaints: one bad object never costs its neighbours.

        Raises UnreachableError if the page itself is no list.
        """
        try:
            try:
                found = self._pages.decode(page)
            except msgspec.ValidationError:
                return self._one_by_one(page)
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{self.path}: the answer is no list: {error}") from error
        return found.metadata, found.items or [], []

    def _one_by_one(self, page: bytes) -> tuple[ListMetadata, list[Any], list[Complaint]]:
        raw = _raw_page.decode(page)
        good: list[Any] = []
        bad: list[Complaint] = []
        for item in raw.items or []:
            try:
                good.append(self.decode(item))
            except msgspec.ValidationError as error:
                bad.append(self.complaint(item, error))
        return raw.metadata, good, bad

    def complaint(self, item: msgspec.Raw, error: Exception) -> Complaint:
        """Return the complaint about an object that is JSON, but not of this kind."""
        fields = msgspec.json.decode(item)
        return complaint(self.name, fields.get("metadata") if isinstance(fields, dict) else None, error)


_raw_page: Final = msgspec.json.Decoder(Page[msgspec.Raw])
NOT_FOUND: Final = 404

PODS: Final = Kind("pods", "/api/v1/pods", Pod)
NODES: Final = Kind("nodes", "/api/v1/nodes", Node)

CLAIMS: Final = "claims"
SLICES: Final = "slices"
CLAIM_GROUP: Final = "/apis/resource.k8s.io"
CLAIM_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions of claims that are read, the best first."""


def claim_kinds(api: Api) -> tuple[Kind, ...]:
    """Return the kinds of claims and slices of this server; none without dynamic resource allocation.  Raises ApiError."""
    try:
        served = {item.version for item in api_group.decode(api.get(CLAIM_GROUP, {})).versions}
    except RefusedError as error:
        if error.status == NOT_FOUND:
            return ()
        raise
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{CLAIM_GROUP}: the answer is no group: {error}") from error
    folder = next((f"{CLAIM_GROUP}/{version}" for version in CLAIM_VERSIONS if version in served), None)
    if folder is None:
        return ()
    return (
        Kind(SLICES, f"{folder}/resourceslices", Slice),
        Kind(CLAIMS, f"{folder}/resourceclaims", Claim),
    )


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """Change of one object; `deleted`: this is its last state."""

    object: T
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class ListBegins:
    """Begin of a list, requested at `asked_at` on the cluster's clock.

    `versions_went_back`: known objects have newer versions than those that come, and are older all the same.
    """

    asked_at: datetime
    versions_went_back: bool = False


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Objects of a list, as they were at `asked_at` or later; `unreadable`: complaints about others."""

    objects: list[T]
    asked_at: datetime
    unreadable: list[Complaint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ListEnds:
    """End of a complete list as of `version`: objects that it did not contain were gone at `answered_at`, or are newer.

    `goes_on_from`: the version at which an unbroken watch goes on; None if it begins anew at the list.
    """

    version: str
    asked_at: datetime
    answered_at: datetime
    goes_on_from: str | None = None


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """Events in the order of the stream, and the version that they reach.

    `current`: a bookmark was read on this connection, so that these events are new and not a backlog.
    """

    events: list[Event[T]]
    version: str
    received_at: datetime
    current: bool
    unreadable: list[Complaint] = field(default_factory=list)


Step = ListBegins | ListPage[Any] | ListEnds | Changes[Any]


class Stream:
    """Stream of one kind of objects of one API server. `spread` is the random source of waits and watch lengths."""

    def __init__(self, api: Api, kind: Kind, *, version: str | None, spread: random.Random, page: int = PAGE) -> None:
        self._api = api
        self._kind = kind
        self._spread = spread
        self._page = page
        self._failures = 0
        self._list_wanted = threading.Event()
        self._unheard = self._went_back = False
        self.version = version
        self.error: ApiError | None = None
        self.wait_s = 0.0
        self.relists = 0

    def list_next(self) -> None:
        """Request a list, from any thread. A watch first catches up, since its pending events are more exact, and goes on
        from there, so that nothing between it and the list is lost.
        """
        self._list_wanted.set()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of one list, or of one watch until it ends. Afterwards `wait_s` is the wait before the next.

        Errors of the API end the steps and are kept in `error`; the next attempt comes after a wait, except after 410, when
        a list follows at once.
        """
        goes_on_from = None
        try:
            if self.version is not None:
                if self._unheard:
                    self._expect_reached(self.version)
                yield from self._watched(self.version)
            goes_on_from = self.version
            if self.version is None or self._list_wanted.is_set():
                yield from self._listed()
        except VersionGoneError as error:
            log.info("%s: the server has no history from version %s on, listing again", self._kind.name, self.version)
            self.version = goes_on_from
            self._went_back = self._went_back or isinstance(error, VersionsWentBackError)
            self._failed(error)
        except ThrottledError as error:
            self._unheard = False
            self._failed(error, error.retry_after_s)
        except ApiError as error:
            self._failed(error)
        else:
            self._failures, self.error, self.wait_s = 0, None, 0.0

    def run(self, deliver: Callable[[Step], None], stopped: Callable[[float], bool]) -> None:
        """Deliver steps until `stopped(wait_s)` is true, which waits that many seconds."""
        while not stopped(self.wait_s):
            for step in self.steps():
                deliver(step)

    def _failed(self, error: ApiError, wait_s: float | None = None) -> None:
        self._failures += 1
        self.error = error
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures, 10))
        own = longest * self._spread.uniform(0.5, 1.0)
        again = isinstance(error, VersionGoneError) and self._failures == 1
        self.wait_s = 0.0 if again else max(own, min(wait_s or 0.0, LONGEST_RETRY_AFTER_S))
        level = logging.ERROR if self._failures >= 5 else logging.WARNING
        log.log(level, "%s; next attempt in %.1f s", error, self.wait_s)

    def _listed(self) -> Iterator[Step]:
        """Yield all pages of one list, consistent as of the version of its first page; a watch keeps its own version."""
        self.relists += 1
        asked_at, skew = self._api.clock.now(), self._api.clock.skew
        yield ListBegins(asked_at, self._went_back)
        parameters = {"limit": str(self._page)}
        answered_at, version = None, ""
        while True:
            body = self._api.get(self._kind.path, parameters)
            if answered_at is None:  # the first answer may have shown how far the own clock is off
                answered_at, asked_at = self._api.clock.now(), asked_at + self._api.clock.skew - skew
            metadata, objects, unreadable = self._kind.items(body)
            version = version or metadata.resource_version
            yield ListPage(objects, asked_at, unreadable)
            if not metadata.continue_:
                break
            parameters = {"limit": str(self._page), "continue": metadata.continue_}
        if not version:
            raise UnreachableError(f"{self._kind.path}: the list names no version")
        yield ListEnds(version, asked_at, answered_at, self.version)
        self.version = self.version or version
        self._went_back = False
        self._list_wanted.clear()

    def _expect_reached(self, version: str) -> None:
        """Ask the server for its version, after a watch on which nothing came.

        A server that was restored from a backup accepts a watch from a version that it has not reached, and sends nothing
        until it has, not even bookmarks (kubernetes#107457).
        """
        metadata, _, _ = self._kind.items(self._api.get(self._kind.path, {"limit": "1"}))
        self._expect_not_before(version, metadata.resource_version)

    def _expect_not_before(self, version: str, reached: str) -> None:
        if reached and int(reached) < int(version):
            raise VersionsWentBackError(f"{self._kind.path}: the server went back from version {version} to {reached}")

    def _watched(self, version: str) -> Iterator[Step]:
        parameters = {
            "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._spread.randint(*WATCH_S)),
        }  # fmt: skip
        current, self._unheard = False, True
        for lines in self._api.lines(self._kind.path, parameters):
            received_at = self._api.clock.now()
            for changes in self._changes([self._event(line) for line in lines], received_at, current):
                self._expect_not_before(version, changes.version)
                yield changes
                self.version, current, self._failures = changes.version, changes.current, 0
                self._unheard = False
            if self._list_wanted.is_set() and current:
                return

    def _changes(self, events: list[WatchEvent], received_at: datetime, current: bool) -> Iterator[Changes[Any]]:
        """Yield a batch of events; the first bookmark among them splits it into a backlog and current events."""
        first = next((place for place, event in enumerate(events) if event.type == "BOOKMARK"), None)
        if current or first is None:
            yield self._part(events, received_at, current)
            return
        # Both parts contain the bookmark: each part must name the version that it reaches.
        yield self._part(events[: first + 1], received_at, False)
        yield self._part(events[first:], received_at, True)

    def _part(self, part: list[WatchEvent], received_at: datetime, current: bool) -> Changes[Any]:
        events: list[Event[Any]] = []
        unreadable: list[Complaint] = []
        for event in part:
            if event.type == "BOOKMARK":
                continue
            try:
                events.append(Event(self._kind.decode(event.object), event.type == "DELETED"))
            except msgspec.ValidationError as error:
                unreadable.append(self._kind.complaint(event.object, error))
        version = version_of.decode(part[-1].object).metadata.resource_version
        if not version:
            raise UnreachableError(f"{self._kind.path}: an event of the stream names no version")
        return Changes(events, version, received_at, current, unreadable)

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = watch_event.decode(line)
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{self._kind.path}: the stream holds no event: {error}") from error
        if event.type == "ERROR":
            raise error_of(self._kind.path, failure_of.decode(event.object).code, bytes(event.object))
        return event
