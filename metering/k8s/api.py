"""Client of the Kubernetes API over HTTP: address, TLS and credentials as in the official client, bodies as raw bytes.

Requests are not retried here: every failure has its own exception, and the stream above decides how to go on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes import client as official
from kubernetes import config as official_config

from metering.k8s.objects import Failure, failure_of

LIST_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 10.0
CREDIBLE_SKEW: Final = timedelta(seconds=2)
"""Largest offset that counts as none: the Date header is whole seconds and some milliseconds old."""


class ApiError(Exception):
    """Failure of a request: the API server did not answer as asked."""


class VersionGoneError(ApiError):
    """Status 410: the version is older than the server's history; list again."""


class VersionsWentBackError(VersionGoneError):
    """Version of the server that is before one that it reported: its store was restored from a backup; list again."""


class ThrottledError(ApiError):
    """Status 429 or 503, with the wait in seconds that the server asks for, if it names one."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnreachableError(ApiError):
    """Missing, broken or silent connection."""


class RefusedError(ApiError):
    """Status 401, 403, 404 and the like: credentials, RBAC or the address are wrong, and a person must look."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ClusterClock:
    """Clock of the agent, corrected to that of the API server.

    Allocations begin on the API server's clock. An agent whose clock runs ahead would disbelieve true ends and report times
    of the future; one that runs behind would end pods before they began.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.skew = timedelta(0)

    def now(self) -> datetime:
        """Return the time on the API server's clock, as far as it is known."""
        return self._now() + self.skew

    def hear(self, date: str | None) -> None:
        """Correct the clock by a Date header (RFC 9110, 6.6.1)."""
        try:
            date_sent = parsedate_to_datetime(date) if date else None
        except ValueError:
            return
        if date_sent is None or date_sent.tzinfo is None:
            return
        ahead = date_sent - self._now()
        credible = abs(ahead) > CREDIBLE_SKEW
        self.skew = timedelta(seconds=round(ahead.total_seconds())) if credible else timedelta(0)


class Api:
    """Requests to one API server.  Raises ApiError, of the subclass that decides how to go on."""

    def __init__(self, configuration: Any, clock: ClusterClock, *, silence_s: float = 90.0) -> None:
        self._client = official.ApiClient(configuration)
        self._configuration = configuration
        self._pool = self._client.rest_client.pool_manager
        self._silence_s = silence_s
        self.clock = clock

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """Return the body of one answer."""
        with self._answer("GET", path, parameters, LIST_TIMEOUT_S) as response:
            return bytes(response.read())

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> bytes:
        """Write an object of the agent's own (its Lease); return the answer's body."""
        with self._answer(method, path, {}, LIST_TIMEOUT_S, msgspec.json.encode(body)) as response:
            return bytes(response.read())

    def lines(self, path: str, parameters: Mapping[str, str]) -> Iterator[list[bytes]]:
        """Yield lines of a watch, as many at a time as have come; ends where the server ends the watch.

        Bookmarks come once a minute: a stream that is silent for longer than `silence_s` is dead, though its
        connection may look alive for ever.
        """
        with self._answer("GET", path, {**parameters, "watch": "1"}, self._silence_s) as response:
            rest = b""
            for chunk in response.stream(1 << 16, decode_content=True):
                *whole, rest = (rest + chunk).split(b"\n")
                if lines := [line for line in whole if line.strip()]:
                    yield lines
            if rest.strip():
                raise UnreachableError(f"{path}: the stream broke off within an event")

    @contextmanager
    def _answer(
        self, method: str, path: str, parameters: Mapping[str, str], read_s: float, body: bytes | None = None
    ) -> Iterator[Any]:
        address = f"{self._configuration.host}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        response = None
        try:
            response = self._pool.request(
                method, address, body=body, headers=self._headers(body), preload_content=False, retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_s),
            )  # fmt: skip
            self.clock.hear(response.headers.get("Date"))
            if response.status >= 300:
                wait = response.headers.get("Retry-After", "")
                wait_s = float(wait) if wait.isdigit() else None
                raise error_of(path, response.status, bytes(response.read()), wait_s)
            yield response
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            if response is not None:
                _give_back(response)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "suanpan-agent"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        return headers


def _give_back(response: Any) -> None:
    """Release a connection for reuse if its answer was read to the end; else close it."""
    if response.closed or getattr(response, "_fp", None) is None or not response.isclosed():
        response.close()
    response.release_conn()


def error_of(path: str, status: int, body: bytes, retry_after_s: float | None = None) -> ApiError:
    """Return the error for a status, of an HTTP answer or of an ERROR event in a watch."""
    try:
        failure = failure_of.decode(body)
    except msgspec.DecodeError:
        failure = Failure()
    text = f"{path}: {status} {failure.reason or ''} {failure.message or ''}".rstrip()
    if status == 410 or failure.reason in ("Expired", "Gone"):
        return VersionGoneError(text)
    if status == 504:  # a proxy's timeout, or the server's wait for a version that it has not reached
        return UnreachableError(text)
    if status == 429 or status >= 500:
        return ThrottledError(text, retry_after_s)
    return RefusedError(text, status)


def configuration_of(kubeconfig: str | None, context: str | None = None) -> Any:
    """Return address and credentials of the API server: from a kubeconfig, or the service account of the agent's own pod.

    Raises kubernetes.config.ConfigException if neither is there.
    """
    configuration = official.Configuration()
    if kubeconfig:
        load: Any = official_config.load_kube_config
        load(kubeconfig, context=context, client_configuration=configuration)
    else:
        load = official_config.load_incluster_config
        load(client_configuration=configuration)
    return configuration


