"""The demonstration, run by a user in an empty home, has the same documents with either store, byte by byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Home
from tests.clickhouse.documents import documents_of
from tests.clickhouse.servers import Replica

pytestmark = pytest.mark.timeout(1800)


def demonstrated(home: Home) -> tuple[dict[str, Any], dict[str, str]]:
    home.path.mkdir()
    return json.loads(home.run("demo", "--no-serve", "--json").stdout), documents_of(home)


def test_the_demonstration_has_the_same_documents_with_records_in_clickhouse(
    both: list[Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON, CSV, XLSX and PDF of 60 invoices and a note, and five months of journal and FOCUS."""
    here = demonstrated(Home(tmp_path / "here"))
    places = ",".join(replica.address for replica in both)
    monkeypatch.setenv("TOKEN_STORE", f"clickhouse://{places};{places}/demonstration")
    there = demonstrated(Home(tmp_path / "there"))
    found = [reported["ledger"]["token_records"] for reported, _ in (here, there)]
    assert len(set(found)) == 1
    stored = [int(both[0].ask(f"SELECT count() FROM demonstration.token_entry_{shard}")) for shard in range(2)]
    assert sum(stored) == found[0]
    assert min(stored) > 100_000
    assert len(here[1]) == 61 * 4 + 5 * 7
    assert there[1] == here[1]
