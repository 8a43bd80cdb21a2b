"""A month of production traces has the same documents with either store, byte by byte; SUANPAN_TRACES names their folder."""

from pathlib import Path

import pytest

from tests.cli import Home
from tests.clickhouse.documents import documents_of
from tests.clickhouse.servers import Replica
from tests.factories.traces import trace_billed, trace_files


def test_the_traces_have_the_same_documents_with_records_in_clickhouse(
    both: list[Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, homes = trace_files(tmp_path), [Home(tmp_path / name) for name in ("here", "there")]
    for home in homes:
        home.path.mkdir()
    trace_billed(homes[0], files)
    here = documents_of(homes[0])
    places = ",".join(replica.address for replica in both)
    monkeypatch.setenv("TOKEN_STORE", f"clickhouse://{places};{places}/traces")
    trace_billed(homes[1], files)
    stored = [int(both[0].ask(f"SELECT count() FROM traces.token_entry_{shard}")) for shard in range(2)]
    assert sum(stored) == len(files["tokens"].read_text().splitlines()) - 1
    assert min(stored) > 1000
    assert len(here) == 4 + 7
    assert documents_of(homes[1]) == here
