"""A sealed month recounted by a Spark cluster gives the bill, line by line, also where a worker dies while it runs."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.closing.services.closing import period_close
from billing.usage.archive.sealed import sealed_files, seals
from billing.usage.files import UsageFileError
from billing.usage.services.sealing import ClosedMonth, usage_seal
from billing.usage.token_file import file_token_sums
from billing.usage.token_spark import spark_token_sums
from metering.intervals import billing_month
from tests.cluster.standalone import Cluster, end, spark_cluster, wait_until
from tests.factories import SET_UP, apply, ingest_tokens, token_record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
OCTOBER = billing_month("2026-10", "Asia/Shanghai")
CHANGE = datetime(2026, 10, 15, 4, 30, tzinfo=UTC)
RECORDS = 3_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with spark_cluster(folder) as found:
        yield found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A sealed month of 3,000 requests around a change of price, of consumers with names that SQL would mind."""
    chance, names = Random(7), ["nlp-key-1", "o'clock \\ x", "算盘"]
    dearer = {
        "name": "dearer", "valid_from": "2026-10-15T12:30:00+08:00",
        "tokens": [{"model": "llama-3-8b", "input": "3.0000", "cache_read": "0.3000", "cache_creation": "3.0000",
                    "output": "9.0000"}],
    }  # fmt: skip
    owners = [SET_UP["consumers"][0] | {"consumer": name} for name in names]
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], dearer], consumers=owners)
    records = [
        token_record(number, time=(OCTOBER.start + timedelta(seconds=chance.randrange(31 * 86_400))).isoformat(),
                     consumer=chance.choice(names), output_tokens=chance.randrange(40, 90_000))
        for number in range(RECORDS)
    ]  # fmt: skip
    ingest_tokens(*records, token_record(RECORDS, time=CHANGE.isoformat()))
    period_close(month="2026-10", actor="ops", now=OVER)
    closed = ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", 1)
    usage_seal(closed=closed, address=str(tmp_path / "archive"), actor="ops", now=OVER, rows_a_file=1)
    return tmp_path / "archive"


def recounted(archive: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    call_command("period_recount", "2026-10", "--sealed", str(archive), "--json", *more)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_cluster_gives_the_bill_line_by_line_also_where_a_worker_dies(
    archive: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = recounted(archive, capsys)
    assert (alone["holds"], alone["records"], alone["lines"]) == (True, RECORDS + 1, 18)
    assert recounted(archive, capsys, "--engine", cluster.master) == alone
    killer = threading.Thread(target=_kill_one_that_works, args=(cluster,))
    killer.start()
    assert recounted(archive, capsys, "--engine", cluster.master) == alone
    killer.join()
    wait_until(lambda: len(cluster.alive()) == 1)
    assert [app["state"] for app in cluster.state()["completedapps"]] == ["FINISHED", "FINISHED"]


def _kill_one_that_works(cluster: Cluster) -> None:
    """As soon as the next recount has both workers busy."""
    wait_until(lambda: [app["state"] for app in cluster.state()["activeapps"]] == ["RUNNING"])
    wait_until(lambda: all(worker["coresused"] == 1 for worker in cluster.alive()))
    end(cluster.workers[0])


def test_a_cluster_removes_repeats_and_refuses_two_contents_of_an_id(
    archive: Path, cluster: Cluster, tmp_path: Path
) -> None:
    """In pieces and buckets of prompt lengths, as DuckDB gives them."""
    files = sealed_files(seals()[0], "tokens", tmp_path, lambda _: None)
    table = pq.read_table(files[0])
    again = tmp_path / "again.parquet"
    pq.write_table(table.slice(0, 100), again)
    pieces = OCTOBER.cut([CHANGE, CHANGE + timedelta(days=3, microseconds=1)])
    bounds: list[dict[str, tuple[int, ...]]] = [{}, {"llama-3-8b": (400, 4096), "o'\\": (1,)}, {}]
    by_spark = partial(spark_token_sums, master=cluster.master, before=1)
    found = by_spark([*files, again], pieces, bounds)
    assert sorted(found, key=repr) == sorted(file_token_sums(files, pieces, bounds, before=1), key=repr)
    more = pa.array([number + 1 for number in table.column("output_tokens").to_pylist()])
    output = table.schema.get_field_index("output_tokens")
    pq.write_table(table.set_column(output, "output_tokens", more).slice(0, 5), again)
    with pytest.raises(UsageFileError, match="5 ids have different contents"):
        by_spark([*files, again], pieces, bounds)
