"""`kill -9` of ClickHouse, PostgreSQL, writers and closes at every step of a report and of a close: a record counts once.

SUANPAN_KILLS says how many; `make clickhouse-kills` does 300.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from django.conf import settings as django_settings
from django.db import InterfaceError, OperationalError, connection

from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod
from billing.rating.models import Charge
from billing.usage.scope import EpochFilter
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store.clickhouse import Servers, token_servers
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.sums import token_sums
from metering.intervals import Interval
from tests.clickhouse.children import CLOSE_STEPS, REPORT_STEPS, close_now, month_at, record, window_at
from tests.clickhouse.servers import Replica, settled
from tests.factories import SET_UP, apply, ingest_tokens
from tests.stored_rows import query, token_events

KILLS: Final = int(os.environ.get("SUANPAN_KILLS", "24"))
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800 + 15 * KILLS)]
MONTHS: Final = max(4, KILLS // 12)
STEP_SECONDS: Final = 3
AGAIN_SECONDS: Final = 60
VICTIMS: Final = ("itself", "itself", "ClickHouse", "PostgreSQL")
PRICES: Final = [{**SET_UP["price_versions"][0], "valid_from": "2023-01-01T00:00:00+08:00"}]
OWNERS: Final = [{"source": "gw", "consumer": f"key-{key}", "team": ("nlp", "cv", "cv")[key], "valid_from": "2023-01-01"}
                 for key in range(3)]  # fmt: skip


class Working:
    """A process whose children are killed, what it said, and what is done when a child comes to a step."""

    def __init__(self, address: str, *arguments: Any) -> None:
        self.child, self.said, self._at = 0, list[Any](), dict[str, Callable[[], None]]()
        database = django_settings.DATABASES["default"]
        url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.clickhouse.children", *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "DATABASE_URL": url, "TOKEN_STORE": address},
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for said in map(json.loads, lines):
                if isinstance(said, str):
                    self._at.pop(said, lambda: None)()
                elif isinstance(said, dict) and "child" in said:
                    self.child = said["child"]
                else:
                    self.said.append(said)

    @property
    def is_at_work(self) -> bool:
        return True

    def begins(self) -> None:
        """What it was told to wait with."""

    def at(self, step: str, act: Callable[[], None]) -> bool:
        """Do it the moment a child comes to this step; gives whether one did."""
        done = threading.Event()
        self._at[step] = lambda: (act(), done.set())[1]
        self.begins()
        for _ in range(10 * STEP_SECONDS):
            if done.wait(0.1) or not self.is_at_work:
                break
        self._at.pop(step, None)
        return done.is_set()

    def kill(self) -> None:
        """The child, which may have ended by itself just now; another one follows at once."""
        with suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.child:
            self.kill()
        self.reader.join()
        assert self.process.stdin is not None
        self.process.stdin.close()


class Closing(Working):
    """One that closes month after month, each when it is told to; and what was acknowledged before that."""

    def __init__(self, address: str, writers: Sequence[Working]) -> None:
        super().__init__(address, "close", MONTHS - 1)
        self.writers, self.begun, self._told = writers, dict[int, set[int]](), 0

    @property
    def waits_for(self) -> int | None:
        """The month that it is ready to close and was not told to."""
        return self.said[-1].get("ready") if len(self.said) > self._told else None

    @property
    def is_at_work(self) -> bool:
        return len(self.said) == self._told

    def begins(self) -> None:
        """After a kill a month is told to go on again, so what was acknowledged before the first time counts."""
        place = self.waits_for
        if place is not None:
            self.begun.setdefault(place, acknowledged(self.writers))
            self._told = len(self.said)
            assert self.process.stdin is not None
            self.process.stdin.write(f"{place}\n")
            self.process.stdin.flush()


def acknowledged(writers: Sequence[Working]) -> set[int]:
    return {number for writer in writers for report in list(writer.said) for number in report}


def postgresql_killed(chance: random.Random) -> None:
    """The first of its processes or another one: all others then end, and what was committed is read from its log."""
    data = Path(os.environ["SUANPAN_HOME"]) / "postgres"
    with suppress(psutil.NoSuchProcess, FileNotFoundError):
        first = psutil.Process(int((data / "postmaster.pid").read_text().partition("\n")[0]))
        assert Path(first.cwd()) == data
        others = first.children()
        chance.choice([*[first] * max(1, len(others)), *others]).kill()


def kills(
    chance: random.Random, replicas: list[Replica], writers: list[Working], closing: Closing
) -> Counter[tuple[str, str]]:
    """Kill as often as asked for; gives how often what was killed at which step."""
    found = Counter[tuple[str, str]]()
    while found.total() < KILLS:
        due = closing.waits_for is not None and closing.waits_for * KILLS <= MONTHS * found.total()
        of_close = due or (closing.is_at_work and chance.random() < 0.8)
        who, steps = (closing, CLOSE_STEPS) if of_close else (chance.choice(writers), REPORT_STEPS)
        victim, step, away = chance.choice(VICTIMS), chance.choice(steps), chance.choice(replicas)
        act = {"itself": who.kill, "ClickHouse": away.kill, "PostgreSQL": lambda: postgresql_killed(chance)}[victim]
        if who.at(step, act):
            found[victim, step if who is not closing else f"close: {step}"] += 1
        time.sleep(chance.uniform(0, 0.3))
        for replica in replicas:
            if replica.process is None or replica.process.poll() is not None:
                replica.start()
    return found


def test_every_acknowledged_record_counts_once_whatever_is_killed(
    servers: Servers, both: list[Replica], third: Replica, settings: Any, tmp_path: Path
) -> None:
    """On three servers, which have both shards each, of which two have to answer."""
    apply(tmp_path, ownership=None, platform=None, consumers=OWNERS, price_versions=PRICES)
    a, b, c = (replica.address for replica in (*both, third))
    address = settings.TOKEN_STORE = f"clickhouse://{a},{b},{c};{b},{c},{a}/tokens"
    begun = token_servers()
    assert begun is not None
    token_store_begin(servers=begun, actor="ops")
    writers = [Working(address, "report", 1000 * number, MONTHS, int(time.time())) for number in range(3)]
    closing = Closing(address, writers)
    began = time.monotonic()
    try:
        found = kills(random.Random(7), [*both, third], writers, closing)
        seconds = time.monotonic() - began
    finally:
        for working in (closing, *writers):
            working.end()
        settled([*both, third])
    taken = acknowledged(writers)
    outcome = again(sorted(taken))
    assert (outcome.accepted, outcome.duplicates, outcome.conflicts) == (0, len(taken), 0)
    reported = max(int(name.removeprefix("req-")) for (name,) in query(f"SELECT id FROM {token_events()}")) + 1
    rest = again(range(reported))
    assert (rest.accepted + rest.duplicates, rest.conflicts) == (reported, 0)
    closed = BillingPeriod.objects.filter(status="closed").count()
    for place in range(MONTHS):
        close_now(place)
    late = assert_billed_once(reported, closing.begun)
    open_batches = query("SELECT count(*) FROM token_open_batch WHERE last = batch")[0][0]
    reports = sum(len(writer.said) for writer in writers)
    print(f"{found.total()} kills in {seconds:.0f} s, {closed} months closed meanwhile, {len(taken)} of {reported} records"
          f" acknowledged in {reports} reports, {late} late, {open_batches} batches that count for nobody")  # fmt: skip
    for (victim, step), number in sorted(found.items()):
        print(f"{victim}, {step}: {number}")
    assert min(closed, reports, open_batches) > 1


def assert_billed_once(number: int, begun: dict[int, set[int]]) -> int:
    """By the records, their roll-ups and the charges of all closes; what was acknowledged before a close began is in it.

    Gives how many were late.
    """
    whole = Interval(window_at(0).start, window_at(MONTHS - 1).end)
    assert set(rollup_difference(whole).values()) == {0}
    assert sum(item.requests for item in token_sums([whole], EpochFilter())) == number
    billed = {kind: int(sum(Charge.objects.filter(token_class=kind).values_list("usage_quantity", flat=True)))
              for kind in ("input", "output")}  # fmt: skip
    assert billed == {"input": 1000 * number + sum(range(number)), "output": 100 * number}
    assert all(proof.holds for place in range(MONTHS) for proof in period_verify(month=month_at(place)))
    epochs = {int(name.removeprefix("req-")): epoch for name, epoch in query(f"SELECT id, epoch FROM {token_events()}")}
    assert len(epochs) == number
    closes = [BillingPeriod.objects.get(month=month_at(place)).close_number for place in range(MONTHS)]
    late = {name for name, epoch in epochs.items() if epoch >= closes[name % MONTHS]}
    assert not [name for place, known in begun.items() for name in known & late if name % MONTHS == place]
    return len(late)


def again(numbers: Any) -> Any:
    """Reported again as soon as the servers take records again."""
    ends = time.monotonic() + AGAIN_SECONDS
    while True:
        try:
            return ingest_tokens(*(record(number, MONTHS) for number in numbers))
        except (InterfaceError, OperationalError):
            connection.close_if_unusable_or_obsolete()
            if time.monotonic() > ends:
                raise
            time.sleep(0.3)
