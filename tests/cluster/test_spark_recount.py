"""A sealed month recounted by a Spark cluster gives the bill, line by line, also where a worker is killed; or an error."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.closing.services.closing import period_close
from billing.local.process_list import free_port
from billing.usage import token_spark
from billing.usage.archive import rows
from billing.usage.archive.sealed import sealed_files, seals
from billing.usage.files import UsageFileError
from billing.usage.services.archiving import records_archive
from billing.usage.services.sealing import ClosedMonth, usage_seal
from billing.usage.token_file import file_token_sums
from billing.usage.token_spark import spark_token_sums
from metering.intervals import billing_month
from tests.cluster.standalone import PARTITIONS, Cluster, end, spark_cluster, wait_until
from tests.factories import SET_UP, apply, ingest_tokens, token_record
from tests.stored_rows import query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
OCTOBER = billing_month("2026-10", "Asia/Shanghai")
CHANGE = datetime(2026, 10, 15, 4, 30, tzinfo=UTC)
CLOSED = ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", 1)
RECORDS = 3_000


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture
def cluster(tmp_path: Path, logs: Path) -> Iterator[Cluster]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with spark_cluster(folder, logs) as found:
        yield found


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed month of 3,000 requests around a change of price, of consumers with names that SQL would mind, in some
    ten files.
    """
    monkeypatch.setattr(rows, "BLOCK", 1 << 16)
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
    usage_seal(closed=CLOSED, address=str(tmp_path / "archive"), actor="ops", now=OVER, rows_a_file=1)
    return tmp_path / "archive"


def recounted(archive: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    call_command("period_recount", "2026-10", "--sealed", str(archive), "--json", *more)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_cluster_gives_the_bill_line_by_line_also_of_a_month_whose_records_left(
    archive: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = recounted(archive, capsys)
    assert (alone["holds"], alone["records"], alone["lines"]) == (True, RECORDS + 1, 18)
    assert recounted(archive, capsys, "--engine", cluster.master) == alone
    (seal,) = seals("2026-10")
    assert records_archive(closed=CLOSED, seal=seal, actor="ops") == RECORDS + 1
    assert query("SELECT count(*) FROM token_entry") == [(0,)]
    assert recounted(archive, capsys, "--engine", cluster.master) == alone
    assert [app["state"] for app in cluster.state()["completedapps"]] == ["FINISHED", "FINISHED"]


def test_a_worker_that_is_killed_while_it_computes_changes_no_line(
    archive: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = recounted(archive, capsys)
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(_kill_while_they_compute, cluster, 1)
        assert recounted(archive, capsys, "--engine", cluster.master) == alone
    lost, ended = _lost_tasks(cluster, killed.result())
    assert lost
    assert ended == {"JobSucceeded"}
    wait_until(lambda: len(cluster.alive()) == 1)


def test_a_cluster_that_loses_all_workers_ends_the_recount_with_an_error(
    archive: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself would wait for ever for another worker."""
    monkeypatch.setattr(token_spark, "IDLE_SECONDS", 5)
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(_kill_while_they_compute, cluster, 2)
        said = _refused(archive, capsys, cluster.master)
    assert said == f"error: --engine {cluster.master}: no worker has computed for 5 s; the recount was given up\n"
    assert _lost_tasks(cluster, killed.result())[0]


def test_a_master_that_nobody_runs_ends_the_recount_with_an_error(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the minute for which Spark tries to reach it."""
    master = f"spark://127.0.0.1:{free_port()}"
    assert _refused(archive, capsys, master).startswith(f"error: --engine {master}: no recount can be started there: ")


def _refused(archive: Path, capsys: pytest.CaptureFixture[str], master: str) -> str:
    """What a recount says that ends with 2 and prints no number."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("period_recount", "2026-10", "--sealed", str(archive), "--engine", master, "--json")
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    return printed.err


def _kill_while_they_compute(cluster: Cluster, workers: int) -> str:
    """As soon as the next recount has both workers busy and begins its many short tasks; returns its application."""
    wait_until(lambda: [app["state"] for app in cluster.state()["activeapps"]] == ["RUNNING"])
    wait_until(lambda: [worker["coresused"] for worker in cluster.alive()] == [1, 1])
    application = str(cluster.state()["activeapps"][0]["id"])
    wait_until(lambda: _sizes_of_stages(cluster, application)[-1:] == [PARTITIONS])
    for worker in cluster.workers[:workers]:
        end(worker)
    return application


def _sizes_of_stages(cluster: Cluster, application: str) -> list[int]:
    """Tasks of the last stage of each job that was begun."""
    begun = [event for event in cluster.events(application) if event["Event"] == "SparkListenerJobStart"]
    return [max(event["Stage Infos"], key=itemgetter("Stage ID"))["Number of Tasks"] for event in begun]


def _lost_tasks(cluster: Cluster, application: str) -> tuple[int, set[str]]:
    """How many tasks were lost with the worker that had begun them, and how the jobs of an application ended."""
    events = cluster.events(application)
    reasons = [event["Task End Reason"]["Reason"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
    results = {event["Job Result"]["Result"] for event in events if event["Event"] == "SparkListenerJobEnd"}
    return reasons.count("ExecutorLostFailure"), results


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
