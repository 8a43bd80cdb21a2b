"""Two servers for all tests of a session, and TOKEN_STORE with two shards that both of them have; and today's engine."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from billing.local.process_list import free_port
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store.clickhouse import Servers, client, token_servers
from billing.usage.store.sharded import beside_close
from tests.clickhouse.servers import Replica, replicas, wait_for


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    with replicas(tmp_path_factory.mktemp("clickhouse"), 2) as found:
        yield found
        client().close()


@pytest.fixture(scope="session")
def address(both: list[Replica]) -> str:
    a, b = (replica.address for replica in both)
    return f"clickhouse://{a},{b};{b},{a}/tokens"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where ClickHouse of today answers (`tests.clickhouse.engine`)."""
    folder, port = tmp_path_factory.mktemp("engine"), free_port()
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.clickhouse.engine", str(folder), str(port)], stdout=out, stderr=out
        )
    try:
        wait_for(f"127.0.0.1:{port}", folder / "out")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def third(both: list[Replica], tmp_path: Path) -> Iterator[Replica]:
    """A server with an empty disk, which a replica can be replaced by."""
    found = Replica(tmp_path / "third", both[0].zookeeper)
    found.start()
    try:
        found.wait()
        yield found
    finally:
        found.kill()


@pytest.fixture
def servers(address: str, settings: Any, transactional_db: None) -> Iterator[Servers]:
    """From now on token records go to ClickHouse. What tests before left there counts for nobody."""
    settings.TOKEN_STORE = address
    found = token_servers()
    assert found is not None
    assert token_store_begin(servers=found, actor="ops")
    yield found
    beside_close()
