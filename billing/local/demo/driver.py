"""Driving the demonstration: everything goes through the endpoints that a user has, over real HTTP."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec

from billing.closing.services.operations import operation_request, operation_run
from billing.closing.tasks import operation_wake
from billing.invoices.models import BillingPeriod, Operation
from billing.invoices.services.documents import invoices_export
from billing.invoices.services.periods import period_open
from billing.local.demo.month import Json, Month, make_month, token_records
from billing.local.demo.set_up_text import orphan_text, set_up_text
from billing.runtime.atomic_file import atomic_file
from billing.setup.apply import set_up_apply
from billing.tenancy.app_command import progress
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_token_create
from metering.intervals import Interval

ACTOR = "demo"
TOKEN_RECORDS = 300_000
TOKEN_BATCH, DEVICE_BATCH = 5_000, 1_000
REPLAYED_EVERY = 20
LATE_SHARE = 0.01
WORKER_PATIENCE_S = 20.0


class DemoError(RuntimeError):
    """A step that did not do what it should."""


@dataclass
class Answers:
    """The answers of the endpoints, added up."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: int = 0

    def add(self, answer: Json) -> None:
        """Add one answer."""
        self.accepted += answer["accepted"]
        self.duplicates += answer["duplicates"]
        self.conflicts += answer["conflicts"]
        self.rejected += len(answer["rejected"])


@dataclass
class Demonstration:
    """One run against a web process at `url`; `say` prints the progress."""

    url: str
    month: str
    home: Path
    say: Callable[[str], None]
    answers: dict[str, Answers] = field(default_factory=dict)
    documents: list[Path] = field(default_factory=list)

    def run(self) -> None:
        """Set up, report, close, resolve, issue, export."""
        directory = self.home / "demo"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._apply(directory / "set-up.yaml", set_up_text(self.month))
        period = period_open(month=self.month)
        window = Interval(period.start, period.end)
        with self._client() as client:
            self._report(client, make_month(window), window)
        self._close(directory)
        self._operate("issue")
        self.documents = invoices_export(month=self.month, directory=directory / "invoices")
        self.say(f"  issued, and written to {directory / 'invoices'}")
        with self._client() as client:
            self._report_late(client, window)

    def _apply(self, path: Path, text: str) -> None:
        with atomic_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
        applied = set_up_apply(path=path, actor=ACTOR)
        self.say(f"  set-up {path.name}: {len(applied.changes)} changes, {applied.unchanged} facts as they were")

    def _client(self) -> httpx.Client:
        ApiToken.objects.filter(name="demo reporters", revoked_at=None).delete()
        _, token = api_token_create(name="demo reporters", scopes=["usage:write"], actor=ACTOR)
        return httpx.Client(base_url=f"{self.url}/api/v1/", headers={"Authorization": f"Bearer {token}"}, timeout=120)

    def _report(self, client: httpx.Client, month: Month, window: Interval) -> None:
        agent = {"name": "suanpan-agent", "version": "demo"}
        for cluster in sorted({node["cluster"] for node in month.capacity}):
            nodes = [node for node in month.capacity if node["cluster"] == cluster]
            self._post(client, "usage/capacity", {"agent": agent, "nodes": nodes})
            mine = [item for item in month.allocations if item["cluster"] == cluster]
            advance = progress(len(mine), f"{cluster}: allocations")
            for batch in _batches(mine, DEVICE_BATCH):
                body = {"agent": {**agent, "cluster": cluster}, "watermark": _text(window.end), "allocations": batch}
                self._post(client, "usage/gpu-allocations", body)
                advance(len(batch))
        for batch in _batches(month.samples, DEVICE_BATCH):
            self._post(client, "usage/efficiency", batch)
        self._report_tokens(client, window)
        for door, answers in self.answers.items():
            self.say(f"  {door}: {answers.accepted} accepted, {answers.duplicates} duplicates recognised")

    def _report_tokens(self, client: httpx.Client, window: Interval) -> None:
        """In order, some batches twice as after a lost answer, and one record in a hundred late."""
        advance = progress(TOKEN_RECORDS, "gateways: token records")
        late: list[Json] = []
        for index, batch in enumerate(_batches(token_records(window, TOKEN_RECORDS), TOKEN_BATCH)):
            held = int(len(batch) * LATE_SHARE)
            late += batch[:held]
            self._post(client, "usage/tokens", batch[held:])
            if index % REPLAYED_EVERY == 0:
                self._post(client, "usage/tokens", batch[held:])
            advance(len(batch) - held)
        for batch in _batches(late, TOKEN_BATCH):
            self._post(client, "usage/tokens", batch)
            advance(len(batch))

    def _report_late(self, client: httpx.Client, window: Interval) -> None:
        """After the close: the next period bills it as a correction at the price of its own time."""
        records = list(islice(token_records(window, 50, seed=7), 50))
        for record in records:
            record["id"] = f"late-{record['id']}"
        self._post(client, "usage/tokens", records)
        self.say("  50 late token records arrived after the close: the next period bills them as corrections")

    def _post(self, client: httpx.Client, door: str, body: Any) -> None:
        response = client.post(door, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"})
        if response.status_code != 200:
            raise DemoError(f"{door} answered {response.status_code}: {response.text[:300]}")
        answers = self.answers.setdefault(door, Answers())
        answers.add(response.json())
        if answers.rejected or answers.conflicts:
            raise DemoError(f"{door} did not take everything: {response.text[:300]}")

    def _close(self, directory: Path) -> None:
        operation = self._operate("close")
        if operation.status == Operation.Status.REFUSED:
            self.say(f"  {operation.message}, as `manage.py period_report {self.month}` shows:")
            self._show_exceptions()
            self.say("  the namespace gets an owner, and the close is asked for again:")
            self._apply(directory / "owner-of-intern-sandbox.yaml", orphan_text(self.month))
            operation = self._operate("close")
        if operation.status != Operation.Status.DONE:
            raise DemoError(operation.message)
        self.say(f"  closed: {operation.message}")

    def _show_exceptions(self) -> None:
        from billing.closing.exceptions import number
        from billing.closing.report import build_report

        period = BillingPeriod.objects.get(month=self.month)
        for item in build_report(period, now=datetime.now(tz=period.end.tzinfo), thorough=False).blocking:
            self.say(f"    {item.kind} {item.subject}: {number(item.quantity)} {item.unit}")

    def _operate(self, kind: str) -> Operation:
        """Ask a worker through the broker; should none answer in good time, do it here: the intent is the same."""
        operation = operation_request(kind=kind, month=self.month, actor=ACTOR, wake=operation_wake)
        deadline = time.monotonic() + WORKER_PATIENCE_S
        while operation.status == Operation.Status.PENDING and time.monotonic() < deadline:
            time.sleep(0.1)
            operation.refresh_from_db()
        return operation_run(operation_id=operation.pk)


def last_month(now: datetime, zone: str) -> str:
    """The last month that has ended."""
    from metering.intervals import billing_month, month_of

    this = billing_month(month_of(now, zone), zone)
    return month_of(this.start - timedelta(days=1), zone)


def _batches(items: Iterable[Json], size: int) -> Iterator[list[Json]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _text(instant: datetime) -> str:
    return instant.isoformat()
