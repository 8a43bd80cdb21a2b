"""Sums of sealed token records on a Spark cluster, in the form of `file_token_sums`, for months beyond one machine.

Master, workers and this machine read the files under the same path. One statement removes repeats, cuts and sums; the tasks
of a worker that dies are repeated by the others. Without any worker the sums are cancelled.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.files import UsageFileError
from billing.usage.store.sums import Bounds, TokenSums
from billing.usage.token_file import Cut, bucket_context
from metering.intervals import Interval, to_us

IDLE_SECONDS: Final = 300
"""Longest wait of a recount without a computing worker; Spark itself waits for ever."""
WITHOUT_REPEATS: Final = f"""
    SELECT source, one.*, one <> other AS conflicting FROM (
        SELECT source, id, min({{record}}) AS one, max({{record}}) AS other
        FROM (SELECT source, id, unix_micros(time) AS time, consumer, model,
                     {', '.join(f'CAST({name} AS DECIMAL(20, 0)) AS {name}' for name in TOKEN_COUNTS)}
              FROM {{sealed}} WHERE epoch < {{before}})
        GROUP BY source, id)""".replace("{record}", f"struct(time, consumer, model, {', '.join(TOKEN_COUNTS)})")
"""SQL of records without repeats; counts are decimals, since a sum of 64-bit integers would wrap."""


class SparkCut(Cut):
    """Statement for Spark: times in microseconds since 1970; texts as bytes, since a literal would interpret a backslash."""

    def instant(self, at: datetime) -> str:
        return str(to_us(at))

    def text(self, value: str) -> str:
        return f"CAST(X'{value.encode().hex()}' AS STRING)"


def spark_token_sums(
    files: Sequence[Path], pieces: Sequence[Interval], bounds: Sequence[Bounds], *, before: int, master: str
) -> list[TokenSums]:
    """Return sums of records of epochs below `before`, computed by the cluster of `master` (spark://host:port).

    Raises UsageFileError if one id has two contents, pyspark is not installed, or the cluster returns no sums.
    """
    if not files:
        return []
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageFileError(f"--engine {master}: needs pyspark (`pip install -r requirements-cluster.txt`)") from error
    try:
        session = (
            SparkSession.builder.master(master).appName("suanpan period_recount")
            .config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false").config("spark.sql.ansi.enabled", "true").getOrCreate()
        )  # fmt: skip
    except (Py4JError, PySparkException) as error:
        raise UsageFileError(f"--engine {master}: no recount can be started there: {_first_lines(error)}") from error
    try:
        with _given_up_when_idle(session.sparkContext) as idle:
            session.read.parquet(*(path.absolute().as_uri() for path in files)).createOrReplaceTempView("sealed")
            wanted, condition = SparkCut(pieces, bounds, "").statement()
            records = WITHOUT_REPEATS.format(sealed="sealed", before=before)
            rows = session.sql(f"SELECT {wanted}, count_if(conflicting) FROM ({records}) WHERE {condition}").collect()
    except (Py4JError, PySparkException) as error:
        why = f"no worker has computed for {IDLE_SECONDS} s; the recount was given up"
        raise UsageFileError(f"--engine {master}: {why if idle.is_set() else _first_lines(error)}") from error
    finally:
        session.stop()
    if conflicts := sum(row[-1] for row in rows):
        raise UsageFileError(f"{conflicts} ids have different contents; keep those that were billed")
    return [
        TokenSums(
            piece, source, consumer, model, requests, int(prompt), int(cache_read), int(cache_creation), int(output),
            int(reasoning), bucket_context(bounds[piece], model, bucket),
        )
        for piece, source, consumer, model, bucket, requests, prompt, cache_read, cache_creation, output, reasoning in (
            row[:-1] for row in rows
        )
    ]  # fmt: skip


@contextmanager
def _given_up_when_idle(context: Any) -> Iterator[threading.Event]:
    """Cancel the jobs of an application without a running task for IDLE_SECONDS; yield an event set if so."""
    over, idle = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(context, over, idle), daemon=True)
    watch.start()
    try:
        yield idle
    finally:
        over.set()
        watch.join()


def _watch(context: Any, over: threading.Event, idle: threading.Event) -> None:
    from py4j.protocol import Py4JError

    tracker, computed = context.statusTracker(), time.monotonic()
    while not over.wait(1):
        try:
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            if not stages or any(stage and stage.numActiveTasks for stage in stages):
                computed = time.monotonic()
            elif time.monotonic() - computed > IDLE_SECONDS:
                idle.set()
                context.cancelAllJobs()
                return
        except Py4JError:  # the cluster has ended the application, and the recount gets the error
            return


def _first_lines(error: Exception) -> str:
    """Return the cause of an error without its stack trace."""
    return " ".join(str(error).splitlines()[:2])
