"""`kill -9` of writers and servers, and every connection to PostgreSQL cut, while months close: a record counts once."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import transaction

from billing.usage.epochs import epoch_advance, ingest_lock_exclusive
from billing.usage.scope import EpochFilter
from billing.usage.store.clickhouse import Servers, StoreAwayError
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.sums import token_sums
from tests.clickhouse.servers import Replica, healed
from tests.clickhouse.writer import POOL, record
from tests.factories import ingest_tokens
from tests.factories.ingest import OCTOBER
from tests.stored_rows import query

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = int(os.environ.get("SUANPAN_KILLS_SECONDS", "40"))
KNOWN = """SELECT hour, dimension, epoch, sum(requests), sum(input_tokens), sum(output_tokens)
    FROM token_usage_hour WHERE epoch < %s GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
CONNECTIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class Writer:
    """A process that reports, and what was acknowledged to it."""

    def __init__(self, number: int, address: str) -> None:
        self.acknowledged, self.answers, self.child = set[int](), 0, 0
        database = django_settings.DATABASES["default"]
        url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.clickhouse.writer", str(1000 * number)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "DATABASE_URL": url, "TOKEN_STORE": address},
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for found in map(json.loads, lines):
                if isinstance(found, int):
                    self.child = found
                else:
                    self.acknowledged.update(found)
                    self.answers += 1

    def kill(self) -> None:
        """Its child, which may have ended by itself just now; another one follows at once."""
        with suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.kill()
        self.reader.join()


def closed() -> tuple[int, Any]:
    """A close, and what it knew."""
    with transaction.atomic():
        ingest_lock_exclusive()
        number = epoch_advance(start=OCTOBER.start, end=OCTOBER.end)
        return number, query(KNOWN, number)


def test_every_acknowledged_record_counts_once_whatever_is_killed(
    servers: Servers, address: str, both: list[Replica]
) -> None:
    chance, writers, closes, kills = random.Random(7), [Writer(number, address) for number in range(3)], [], 0
    try:
        while not all(writer.answers for writer in writers):
            time.sleep(0.1)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            time.sleep(chance.uniform(0.1, 0.6))
            fault = chance.choice(["writer"] * 4 + ["replica", "connections", "close", "close"])
            kills += fault != "close"
            if fault == "writer":
                chance.choice(writers).kill()
            elif fault == "replica":
                away = chance.choice(both)
                away.kill()
                time.sleep(chance.uniform(0, 2))
                healed(away)
            elif fault == "connections":
                query(CONNECTIONS)
            else:
                closes.append(closed())
    finally:
        for writer in writers:
            writer.end()
        for replica in both:
            healed(replica)
    acknowledged = set.union(*(writer.acknowledged for writer in writers))
    outcome = again(sorted(acknowledged))
    assert (outcome.accepted, outcome.duplicates + outcome.conflicts) == (0, len(acknowledged))
    rest = again(range(POOL))
    assert rest.accepted + rest.duplicates + rest.conflicts == POOL
    assert set(rollup_difference(OCTOBER).values()) == {0}
    assert sum(item.requests for item in token_sums([OCTOBER], EpochFilter())) == POOL
    assert all(query(KNOWN, number) == known for number, known in closes)
    open_batches = query("SELECT count(*) FROM token_open_batch WHERE last = batch")[0][0]
    answers = sum(writer.answers for writer in writers)
    print(f"{kills} faults, {len(closes)} closes, {answers} answers, {open_batches} batches that count for nobody")
    assert min(kills, len(closes), open_batches) > 1
    assert len(acknowledged) > POOL / 2


def again(numbers: Any) -> Any:
    """Reported again as soon as the servers take records again."""
    for _ in range(100):
        try:
            return ingest_tokens(*map(record, numbers))
        except StoreAwayError:
            time.sleep(0.3)
    raise AssertionError("ClickHouse does not take records again")
