"""TOKEN_STORE: which servers have which shard."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import numpy as np
import pytest
from django.core.exceptions import ImproperlyConfigured

from billing.usage.store import clickhouse
from billing.usage.store.clickhouse import servers_read
from billing.usage.store.sharded import shards_of


def test_replicas_have_commas_between_and_shards_semicolons() -> None:
    found = servers_read("clickhouse://wang:a%40b@a:8123,b:8123;b:8123,c:9000/tokens")
    assert found is not None
    assert (found.scheme, found.user, found.password, found.database) == ("http", "wang", "a@b", "tokens")
    assert found.shards == (("a:8123", "b:8123"), ("b:8123", "c:9000"))
    alone = servers_read("clickhouses://a:8443/tokens")
    assert alone is not None
    assert (alone.scheme, alone.user, alone.shards) == ("https", "default", (("a:8443",),))
    assert servers_read("") is None


@pytest.mark.parametrize("address", [
    "postgresql://a:5432/tokens", "clickhouse://a:8123", "clickhouse://a/tokens", "clickhouse://a:8123;/tokens",
    "clickhouse:///tokens", "clickhouse://a:8123/to-kens", "clickhouse://a:x/tokens",
])  # fmt: skip
def test_any_other_address_starts_no_process(address: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="TOKEN_STORE is no address such as clickhouse://"):
        servers_read(address)


def test_the_shard_of_a_key_is_the_rest_of_its_second_half() -> None:
    keys = np.frombuffer(bytes(15) + b"\x07" + bytes(8) + b"\xff" * 8 + bytes([9] * 8) + bytes(8), np.uint8).reshape(3, 16)
    assert shards_of(keys, 3).tolist() == [1, (2**64 - 1) % 3, 0]
    assert shards_of(keys, 16).tolist() == [7, 15, 0]


def test_threads_that_ask_first_at_the_same_time_share_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another client would be left open when nobody has it any more."""
    at_once, made = Barrier(2), httpx.Client

    def client(**options: Any) -> httpx.Client:
        at_once.wait(60)
        return made(**options)

    monkeypatch.setattr(clickhouse, "_clients", {})
    monkeypatch.setattr(httpx, "Client", client)
    with ThreadPoolExecutor(2) as pool:
        first, second = (asked.result() for asked in [pool.submit(clickhouse.client) for _ in range(2)])
    assert first is second
