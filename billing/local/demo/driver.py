"""Driver of the demonstration: every step uses the endpoints that a user has, over real HTTP."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec
from celery import chain
from django.utils import timezone
from kombu.exceptions import OperationalError

from billing.budgets.models import DailySpend
from billing.budgets.services import days_store
from billing.budgets.tasks import budgets_evaluate, outlook_update
from billing.closing.exceptions import number
from billing.closing.report import build_report
from billing.closing.services.operations import operation_request, operation_run
from billing.closing.tasks import operation_wake
from billing.explorer.tasks import cubes_refresh
from billing.inbox.models import MonthFindings
from billing.inbox.tasks import findings_refresh
from billing.invoices.models import BillingPeriod, Operation
from billing.invoices.services.documents import invoices_export
from billing.invoices.services.periods import period_open
from billing.local.demo.events import Events
from billing.local.demo.month import Json, Month, make_month, token_records
from billing.local.demo.set_up_text import EARLIER_ISSUER, ISSUER, orphan_text, set_up_text
from billing.local.demo.small_months import (
    EARLIER,
    RUNNING,
    SILENT_FOR,
    Growth,
    Taken,
    daily_tokens,
    lab_month,
    small_month,
    spike,
    taken_by,
    unowned_job,
)
from billing.runtime.atomic_file import atomic_file
from billing.setup.apply import set_up_apply
from billing.tenancy.app_command import number_of, progress
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_token_create
from metering.intervals import Interval, month_of, next_month, previous_month

ACTOR = "demo"
TOKEN_RECORDS = 300_000
TOKEN_BATCH, DEVICE_BATCH = 5_000, 1_000
REPLAYED_EVERY = 20
LATE_SHARE = 0.01
LATE_RECORDS = 50
WORKER_PATIENCE_S = 20.0
FINDINGS_PATIENCE_S = 120.0


class DemoError(RuntimeError):
    """Step of the demonstration that failed."""


@dataclass
class Answers:
    """Sums of the answers of the endpoints."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: int = 0

    def add(self, answer: Json) -> None:
        self.accepted += answer["accepted"]
        self.duplicates += answer["duplicates"]
        self.conflicts += answer["conflicts"]
        self.rejected += len(answer["rejected"])


@dataclass
class Demonstration:
    """Run of the demonstration against a web process at `url`; `say` prints the progress.

    `to_the_end`: wait until the worker has found the anomalies; else they appear in the portal while it is in use.
    """

    url: str
    month: str
    home: Path
    now: datetime
    say: Callable[[str], None]
    to_the_end: bool = False
    answers: dict[str, Answers] = field(default_factory=dict)
    documents: list[Path] = field(default_factory=list)
    reported: int = 0

    def run(self) -> None:
        """Set up, report, close, resolve, issue; continue with the running month and its events; export."""
        directory = self.home / "demo"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        earlier = _months_before(self.month, len(EARLIER))
        self._set_up(directory, earlier[0])
        period = period_open(month=self.month)
        window = period.window
        detailed = make_month(window)
        taken = taken_by(detailed)
        with self._client() as client:
            for name, growth in zip(earlier, EARLIER, strict=True):
                self._report_small(client, name, growth, taken)
            self._report(client, detailed, window)
        for name in earlier:
            self._finish(name)
        self._apply(directory / "set-up.yaml", set_up_text(self.month, earlier[0]))
        self._close(directory)
        self._operate("issue", self.month)
        self.say(f"  issued {self.month}")
        with self._client() as client:
            self._report_late(client, window)
            self._report_running(client, detailed, taken)
        Events(self.url, earlier[-1], self.running, self.now, self.say).happen()
        self.documents = invoices_export(month=self.month, directory=directory / "invoices")
        self.say(f"  invoices of {self.month} written to {directory / 'invoices'}")
        self._look_ahead()

    @property
    def running(self) -> str:
        """Return the month that has begun and is not over."""
        return next_month(self.month)

    @property
    def until(self) -> datetime:
        """Return the instant up to which the running month is reported."""
        return self.now.replace(second=0, microsecond=0)

    @property
    def usage(self) -> dict[str, int]:
        """Return the reported usage of the detailed month, each record counted once."""
        return {"allocations": self.reported, "token_records": TOKEN_RECORDS + LATE_RECORDS}

    def _set_up(self, directory: Path, earliest: str) -> None:
        """Set up under the name that the department has at that time."""
        billed = BillingPeriod.objects.filter(month=self.month, status=BillingPeriod.Status.CLOSED).exists()
        issuer = ISSUER if billed else EARLIER_ISSUER
        self._apply(directory / "set-up.yaml", set_up_text(self.month, earliest, issuer))

    def _apply(self, path: Path, text: str) -> None:
        with atomic_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
        applied = set_up_apply(path=path, actor=ACTOR)
        self.say(f"  set-up {path.name}: {number_of(len(applied.changes), 'change')}, {applied.unchanged:,} unchanged")

    def _client(self) -> httpx.Client:
        # the secret of an earlier token is not stored, so that only a new one can be used
        ApiToken.objects.filter(name="demo reporters", revoked_at=None).delete()
        _, token = api_token_create(name="demo reporters", scopes=["usage:write"], actor=ACTOR)
        return httpx.Client(base_url=f"{self.url}/api/v1/", headers={"Authorization": f"Bearer {token}"}, timeout=120)

    def _report(self, client: httpx.Client, month: Month, window: Interval) -> None:
        self.reported = len(month.allocations)
        self._report_devices(client, month)
        self._report_tokens(client, window)
        for door, answers in self.answers.items():
            self.say(f"  {door}: {answers.accepted:,} accepted, {answers.duplicates:,} duplicates recognised")

    def _report_devices(self, client: httpx.Client, month: Month) -> None:
        """Report capacity, allocations and samples, as agents that have watched to the end of the month's window."""
        agent = {"name": "suanpan-agent", "version": "demo"}
        for cluster in sorted({node["cluster"] for node in month.capacity}):
            nodes = [node for node in month.capacity if node["cluster"] == cluster]
            self._post(client, "usage/capacity", {"agent": agent, "nodes": nodes})
            mine = [item for item in month.allocations if item["cluster"] == cluster]
            report = {"agent": {**agent, "cluster": cluster}, "watermark": month.window.end.isoformat()}
            advance = progress(len(mine), f"{cluster}: allocations")
            for batch in list(_batches(mine, DEVICE_BATCH)) or [[]]:
                self._post(client, "usage/gpu-allocations", {**report, "allocations": batch})
                advance(len(batch))
        for batch in _batches(month.samples, DEVICE_BATCH):
            self._post(client, "usage/efficiency", batch)

    def _report_small(self, client: httpx.Client, name: str, growth: Growth, taken: Taken) -> None:
        period = period_open(month=name)
        window = period.window
        self._report_devices(client, small_month(name, window, growth, taken, window.end))
        for batch in _batches(daily_tokens(window, growth.requests, window.end), TOKEN_BATCH):
            self._post(client, "usage/tokens", batch)
        self.say(f"  {name}: reported")

    def _report_running(self, client: httpx.Client, detailed: Month, taken: Taken) -> None:
        """Report the running month until now: jobs of the month before end, others run on, and one agent is silent."""
        period = period_open(month=self.running)
        window, until = period.window, self.until
        if until <= window.start:
            return
        month = small_month(self.running, window, RUNNING, taken, until)
        unowned_job(month)
        month.allocations = [*(_went_on(record, end, until) for record, end in detailed.running), *month.allocations]
        self._report_devices(client, month)
        silent_since = until - SILENT_FOR
        self._report_devices(client, lab_month(window, silent_since if silent_since > window.start else until))
        tokens = [*daily_tokens(window, RUNNING.requests, until), *spike(window, until)]
        for batch in _batches(tokens, TOKEN_BATCH):
            self._post(client, "usage/tokens", batch)
        self.say(f"  {self.running}: reported until now")

    def _report_tokens(self, client: httpx.Client, window: Interval) -> None:
        """Report token records in order, some batches twice as after a lost answer, and one record in a hundred late."""
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
        """Report after the close: the next period bills these records as a correction at the price of their own time."""
        records = list(islice(token_records(window, LATE_RECORDS, seed=7), LATE_RECORDS))
        for record in records:
            record["id"] = f"late-{record['id']}"
        self._post(client, "usage/tokens", records)
        self.say(f"  {LATE_RECORDS} late token records arrived after the close: the next period bills them as corrections")

    def _post(self, client: httpx.Client, door: str, body: Any) -> None:
        response = client.post(door, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"})
        if response.status_code != 200:
            raise DemoError(f"{door} answered {response.status_code}: {response.text[:300]}")
        answers = self.answers.setdefault(door, Answers())
        answers.add(response.json())
        if answers.rejected or answers.conflicts:
            raise DemoError(f"{door} did not take everything: {response.text[:300]}")

    def _finish(self, month: str) -> None:
        closed = self._operate("close", month)
        if closed.status != Operation.Status.DONE:
            raise DemoError(f"{month}: {closed.message}")
        issued = self._operate("issue", month)
        self.say(f"  {month}: {closed.message}, {issued.message}")

    def _close(self, directory: Path) -> None:
        operation = self._operate("close", self.month)
        if operation.status == Operation.Status.REFUSED:
            self.say(f"  {operation.message}, as `manage.py period_report {self.month}` shows:")
            self._show_exceptions()
            self.say("  the namespace gets an owner, and the close is asked for again:")
            self._apply(directory / "owner-of-intern-sandbox.yaml", orphan_text(self.month))
            operation = self._operate("close", self.month)
        if operation.status != Operation.Status.DONE:
            raise DemoError(operation.message)
        self.say(f"  closed: {operation.message}")

    def _show_exceptions(self) -> None:
        period = BillingPeriod.objects.get(month=self.month)
        for item in build_report(period, now=datetime.now(tz=period.end.tzinfo), thorough=False).blocking:
            self.say(f"    {item.kind} {item.subject}: {number(item.quantity)} {item.unit}")

    def _operate(self, kind: str, month: str) -> Operation:
        """Request an operation from a worker; run it here if none has answered in time: both do the same."""
        operation = operation_request(kind=kind, month=month, actor=ACTOR, wake=operation_wake)
        deadline = time.monotonic() + WORKER_PATIENCE_S
        while operation.status == Operation.Status.PENDING and time.monotonic() < deadline:
            time.sleep(0.1)
            operation.refresh_from_db()
        return operation_run(operation_id=operation.pk)

    def _look_ahead(self) -> None:
        """Ask a worker for the later work of the scheduler: standings, forecasts, findings, sums for charts."""
        if DailySpend.objects.exists():  # the scheduler ran before all was reported
            days_store(now=timezone.now(), rebuild=True)
        asked = timezone.now()
        try:
            chain(*(task.si() for task in (budgets_evaluate, outlook_update, findings_refresh, cubes_refresh))).delay()
        except OperationalError:
            self.say("  the broker cannot be reached: budgets and findings wait for the scheduler")
            return
        found = MonthFindings.objects.filter(month=self.running, as_of__gte=asked)
        deadline = time.monotonic() + (FINDINGS_PATIENCE_S if self.to_the_end else 0)
        while time.monotonic() < deadline and not found.exists():
            time.sleep(0.1)


def _months_before(month: str, count: int) -> list[str]:
    """Return that many months before a month, the oldest first."""
    months = [month]
    while len(months) <= count:
        months.insert(0, previous_month(months[0]))
    return months[:-1]


def _went_on(record: Json, end: datetime, until: datetime) -> Json:
    """Return a job that ran over the end of its month, as it is reported at `until`."""
    if end > until:
        return {**record, "observed_until": until.isoformat()}
    return {**record, "ended_at": end.isoformat(), "observed_until": end.isoformat(), "end_reason": "completed"}


def last_month(now: datetime, zone: str) -> str:
    return previous_month(month_of(now, zone))


def _batches(items: Iterable[Json], size: int) -> Iterator[list[Json]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
