"""ClickHouse servers over HTTP: the shards of TOKEN_STORE; requests go to the first replica of a shard that answers.

A writing statement is sent once: without a response the sender does not repeat it, but raises. So rows exist at most once
per statement, and readers need not remove repeated ones.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError

if TYPE_CHECKING:
    import httpx

Given = TypeVar("Given")
Found = TypeVar("Found")
EXAMPLE: Final = "clickhouse://user:password@host-a:8123,host-b:8123/database"
SECONDS: Final = 15
"""Timeout of requests that a sender waits for; sums of a month and sorted reads may take LONG_SECONDS."""
LONG_SECONDS: Final = 600
CONNECT_SECONDS: Final = 3
MOST_AT_ONCE: Final = 32
QUORUM_MS: Final = 8_000
BEHIND_SECONDS, AGAIN_SECONDS = 8, 0.02
HAS_ALL: Final = "min((log_pointer > log_max_index OR log_max_index = 0) AND inserts_in_queue = 0)"
"""SQL condition on both tables of a shard: the replica has every insert. A single insert is known to each replica itself."""
LONGEST_STATEMENT: Final = 64 << 20
SORTED_BYTES: Final = 1 << 30
NOT_WRITTEN: Final = tuple(f"Code: {code}{end}" for code in (164, 242, 285, 286) for end in ",.")
"""Errors that precede any write: the replica is not active, or read only; too few replicas; an earlier insert has no
quorum yet.
"""


class StoreAwayError(OperationalError):
    """Error of a statement that no replica of a shard executed: as with a database that is down, the sender repeats.

    nothing_written: True if the statement certainly changed nothing. behind: True if a replica will soon be up to date.
    """

    def __init__(self, message: str, *, nothing_written: bool = False, behind: bool = False) -> None:
        super().__init__(message)
        self.nothing_written, self.behind = nothing_written, behind


@dataclass(frozen=True, slots=True)
class Servers:
    """Replicas of each shard by address, and the database with the tables of all shards."""

    scheme: str
    user: str
    password: str
    database: str
    shards: tuple[tuple[str, ...], ...]

    def rows(self, shard: int, statement: str, *, seconds: float = LONG_SECONDS) -> list[list[str]]:
        """Return the rows of a SELECT without FORMAT, as text; select texts with hex().  Raises StoreAwayError."""
        answer = self._first(shard, statement, {"wait_end_of_query": "1"}, seconds)
        return [line.split("\t") for line in answer.text.splitlines()]

    def stream(self, shard: int, statement: str) -> Iterator[str]:
        """Yield the lines of a SELECT, tab-separated; the server has sorted all rows on disk before it sends the first."""
        asked = {"wait_end_of_query": "1", "max_bytes_before_external_sort": str(SORTED_BYTES)}
        import httpx

        answer = self._first(shard, statement, asked, LONG_SECONDS, stream=True)
        try:
            yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise StoreAwayError(f"shard {shard}: {error!r}") from error
        finally:
            answer.close()

    def run(self, shard: int, statement: str, replica: str) -> str:
        """Return the response of one replica, which may lag behind the others.  Raises StoreAwayError."""
        return self._send(shard, replica, {"select_sequential_consistency": "0"}, statement.encode()).text

    def insert(self, shard: int, statement: str, rows: bytes) -> None:
        """Insert rows; returns once a majority of the replicas has them.  Raises StoreAwayError."""
        quorum, asked = self._quorum(shard), {"query": statement}
        if quorum > 1:
            asked |= {"insert_quorum": str(quorum), "insert_quorum_timeout": str(QUORUM_MS)}
        refused: StoreAwayError | None = None
        for replica in self.shards[shard]:
            try:
                self._send(shard, replica, asked, rows)
                return
            except StoreAwayError as error:
                if not error.nothing_written:
                    raise
                refused = error
        raise refused or AssertionError("a shard has replicas")

    def each(self, work: Callable[[Given], Found], parts: Sequence[Given]) -> list[Found]:
        """Return the results of `work` for each part, run concurrently; raises the first error after all have ended."""
        if len(parts) < 2:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(min(len(parts), MOST_AT_ONCE)) as pool:
            return list(pool.map(work, parts))

    def _first(
        self, shard: int, statement: str, asked: Mapping[str, str], seconds: float, *, stream: bool = False
    ) -> "httpx.Response":
        ends = time.monotonic() + BEHIND_SECONDS
        while True:
            away: list[StoreAwayError] = []
            for replica in self.shards[shard]:
                try:
                    self._require_all(shard, replica)
                    return self._send(shard, replica, asked, statement.encode(), seconds, stream=stream)
                except StoreAwayError as error:
                    away.append(error)
            # asked again only while a replica is about to catch up
            if time.monotonic() > ends or not any(error.behind for error in away):
                raise away[0]
            time.sleep(AGAIN_SECONDS)

    def _quorum(self, shard: int) -> int:
        return len(self.shards[shard]) // 2 + 1

    def _require_all(self, shard: int, replica: str) -> None:
        """Raise StoreAwayError if a replica may lack rows that a majority has.

        The server's own check covers only the last insert, which a replica may have fetched before earlier ones.
        """
        if self._quorum(shard) < len(self.shards[shard]):
            tables = f"database = '{self.database}' AND endsWith(table, '_{shard}')"
            if self.run(shard, f"SELECT {HAS_ALL} FROM system.replicas WHERE {tables}", replica).strip() != "1":
                raise StoreAwayError(f"shard {shard} at {replica}: it does not have all rows yet", behind=True)

    def _send(
        self, shard: int, replica: str, asked: Mapping[str, str], body: bytes, seconds: float = SECONDS, *,
        stream: bool = False,
    ) -> "httpx.Response":
        import httpx

        address = f"{self.scheme}://{replica}/"
        try:
            if _is_parallel(address, self.user, self.password):
                asked = {**asked, "insert_quorum_parallel": "0"}
            if len(self.shards[shard]) > 1:
                asked = {"select_sequential_consistency": "1", **asked}
            request = client().build_request(
                "POST", address, params={"max_query_size": str(LONGEST_STATEMENT), **asked}, content=body,
                headers=_signed(self.user, self.password), timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
            )  # fmt: skip
            answer = client().send(request, stream=stream)
            if answer.status_code != HTTPStatus.OK:
                answer.read()
        except httpx.ConnectError as error:
            raise StoreAwayError(f"shard {shard} at {replica}: {error}", nothing_written=True) from error
        except httpx.HTTPError as error:
            raise StoreAwayError(f"shard {shard} at {replica}: {error!r}") from error
        if answer.status_code != HTTPStatus.OK:
            text = answer.text.strip()[:500]
            raise StoreAwayError(f"shard {shard} at {replica}: {text}", nothing_written=text.startswith(NOT_WRITTEN))
        return answer


def servers_read(url: str) -> Servers | None:
    """Return the servers of a URL, None if it is empty.  Raises ImproperlyConfigured without naming a password."""
    if not url:
        return None
    parts = urlsplit(url)
    signed, _, places = parts.netloc.rpartition("@")
    user, _, password = signed.partition(":")
    shards = tuple(tuple(filter(None, shard.split(","))) for shard in places.split(";"))
    good = parts.scheme in ("clickhouse", "clickhouses") and parts.path[1:].isidentifier() and all(shards)
    if not good or not all(port.isdigit() for shard in shards for _, _, port in (item.rpartition(":") for item in shard)):
        raise ImproperlyConfigured(
            f"TOKEN_STORE is no address such as {EXAMPLE}: replicas of a shard with commas between, shards with semicolons"
        )
    scheme = "https" if parts.scheme == "clickhouses" else "http"
    return Servers(scheme, unquote(user) or "default", unquote(password), parts.path[1:], shards)


def token_servers() -> Servers | None:
    """Return the servers that store token records, None if PostgreSQL does; the only reader of TOKEN_STORE."""
    return _servers(settings.TOKEN_STORE)


_servers = lru_cache(maxsize=8)(servers_read)


_clients: dict[str, "httpx.Client"] = {}


def client() -> "httpx.Client":
    """Return the HTTP client shared by this process's threads; `setdefault` keeps one when two threads create it at once."""
    import httpx  # not needed if PostgreSQL stores the records

    if "own" not in _clients:
        _clients.setdefault("own", httpx.Client(timeout=SECONDS, trust_env=False, limits=httpx.Limits(max_connections=64)))
    return _clients["own"]


os.register_at_fork(after_in_child=_clients.clear)


def _signed(user: str, password: str) -> dict[str, str]:
    return {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}


@lru_cache(maxsize=256)
def _is_parallel(address: str, user: str, password: str) -> bool:
    """Return True if a server lets inserts with a quorum overtake each other; sequential consistency needs that off."""
    asked = "SELECT count() FROM system.settings WHERE name = 'insert_quorum_parallel'"
    answer = client().post(address, content=asked.encode(), headers=_signed(user, password))
    if answer.status_code != HTTPStatus.OK:
        raise StoreAwayError(f"{address}: {answer.text.strip()[:500]}", nothing_written=True)
    return answer.text.strip() == "1"


def literals(values: Iterable[int | str]) -> str:
    """Return numbers, or texts of letters and digits, as comma-separated literals."""
    return ",".join(repr(value) for value in values)
