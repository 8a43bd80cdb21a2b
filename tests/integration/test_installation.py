"""`manage.py up` and `manage.py demo` as a user runs them, in an empty home."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import psutil
import pytest

from billing.local.demo.month import Month, make_month
from billing.local.demo.set_up_text import ZONE
from billing.local.demo.small_months import EARLIER, RUNNING, Growth, daily_tokens, small_month, taken_by
from billing.local.process_list import free_port
from metering.intervals import Interval, billing_month, next_month, previous_month
from tests.cli import Home
from tests.factories.servers import until

pytestmark = pytest.mark.postgresql("an installation of its own, for which `token_store` never ran")


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, dict[str, Any]]:
    home = Home(tmp_path_factory.mktemp("demo"))
    return home, json.loads(home.run("demo", "--no-serve", "--json").stdout)


def test_the_demonstration_ends_with_an_invoice_per_team(demonstration: tuple[Home, dict[str, Any]]) -> None:
    _, reported = demonstration
    assert len(reported["invoices"]) == 12
    assert reported["usage"] == {"allocations": 1906, "token_records": 300_050}
    assert reported["ledger"]["token_records"] > 306_000
    numbers = [invoice["number"] for invoice in reported["invoices"]]
    year = reported["period"][:4]
    assert numbers == [f"AI-INFRA-{year}-{n:06d}" for n in range(1, 13)]
    for invoice in reported["invoices"]:
        assert Decimal(invoice["total"]) == sum(Decimal(line["amount"]) for line in invoice["lines"])
    kinds = {(line["kind"], line["reason"]) for invoice in reported["invoices"] for line in invoice["lines"]}
    assert kinds == {("gpu", None), ("tokens", None), ("efficiency", "reward"), ("efficiency", "penalty")}
    assert {line["unit"] for i in reported["invoices"] for line in i["lines"]} == {"GPU-Hours", "Slice-Hours", "1M Tokens"}
    assert len(reported["documents"]) == 12 * 4  # PDF, CSV, XLSX and JSON of each invoice
    assert all(Path(path).stat().st_size > 500 for path in reported["documents"])


def test_the_moved_namespace_is_on_both_teams_invoices(demonstration: tuple[Home, dict[str, Any]]) -> None:
    _, reported = demonstration
    teams = {
        invoice["team"] for invoice in reported["invoices"] for line in invoice["lines"] if line["namespace"] == "vision-lab"
    }
    assert teams == {"cv", "robotics"}


def test_the_month_follows_from_its_usage_and_adds_up(demonstration: tuple[Home, dict[str, Any]]) -> None:
    home, reported = demonstration
    proofs = json.loads(home.run("period_verify", reported["period"], "--json").stdout)["proofs"]
    assert [proof["ok"] for proof in proofs] == [True] * 12
    report = json.loads(home.run("period_report", reported["period"], "--json").stdout, parse_float=Decimal)
    seconds = report["gpu_seconds"]
    assert seconds["charged"] + seconds["platform"] + seconds["idle"] == seconds["capacity"]
    assert all(check["ok"] for check in report["checks"])


FACTS = """
import json
from django.db.models import Sum
from django.utils import timezone
from billing.budgets.models import BudgetStatus, CostAnomaly
from billing.corrections.models import Dispute
from billing.explorer.month_lines import month_lines
from billing.invoices.models import BillingPeriod, InvoiceLine, Note
from billing.usage.reported import Reported
from billing.usage.scope import EVERYTHING
from metering.intervals import Interval

periods = list(BillingPeriod.objects.order_by("month"))
running, now = periods[-1], timezone.now()
lines = InvoiceLine.objects.filter(invoice__status="issued").order_by()
devices = lines.filter(unit="GPU-Hours", kind="gpu")
state = Reported(now).state(EVERYTHING, Interval(running.start, running.end))
print(json.dumps({
    "months": [[p.month, p.status, p.invoices.filter(status="issued").count()] for p in periods],
    "totals": dict(lines.values_list("invoice__period__month").annotate(Sum("amount"))),
    "hours": dict(devices.values_list("invoice__period__month").annotate(Sum("quantity"))),
    "tokens": dict(lines.filter(unit="1M Tokens").values_list("invoice__period__month").annotate(Sum("quantity"))),
    "prices": sorted({(line.invoice.period.month, str(line.unit_price.normalize())) for line in
                      lines.filter(sku="deepseek-v3", token_class="output").select_related("invoice__period")}),
    "numbers": sorted(lines.values_list("invoice__number", flat=True).distinct()),
    "efficiency": sorted({(line.invoice.period.month, line.reason) for line in
                          lines.filter(kind="efficiency").select_related("invoice__period")}),
    "budgets": {row.budget.team.code: [row.amount, row.spent] for row in BudgetStatus.objects.filter(period=running.month)},
    "unusual": [[row.team.code, row.sku, str(row.day), row.amount] for row in CostAnomaly.objects.all()],
    "disputes": [[row.team.code, row.status, row.amount, row.document.period.month] for row in Dispute.objects.all()],
    "notes": [[row.number, row.team.code, row.total, row.invoice.period.month, row.correction.proposal.created_by,
               sorted(row.correction.approvers)] for row in Note.objects.all()],
    "silent": [[row.kind, row.place, row.since.isoformat()] for row in state.silent],
    "energy": [[line.key.cluster, line.energy_kwh, line.co2_kg] for line in month_lines(running, now).lines
               if line.energy_kwh],
}, default=str))
"""
SPIKE = Decimal("281.40") * 4 + Decimal("138.60") * Decimal("0.80") + Decimal("84") * 16
"""30,000 requests of 14,000 tokens (33 % of them cached) in and 2,800 out, at the prices of deepseek-v3: 2,580.48."""


@dataclass
class Planned:
    """What the demonstration meant to report, summed anew; the running month is reported through `until`."""

    detailed: str
    until: datetime

    def __post_init__(self) -> None:
        self.months = [self.detailed]
        while len(self.months) < 5:
            self.months.insert(0, previous_month(self.months[0]))
        self.running = billing_month(next_month(self.detailed), ZONE)
        self.whole = make_month(billing_month(self.detailed, ZONE))

    def earlier(self) -> Iterator[tuple[str, Growth, Month]]:
        """The four small months that are closed."""
        taken = taken_by(self.whole)
        for name, growth in zip(self.months[:-1], EARLIER, strict=True):
            window = billing_month(name, ZONE)
            yield name, growth, small_month(name, window, growth, taken, window.end)

    def gpu_hours(self) -> dict[str, Fraction]:
        """Of whole devices, by month, of all that is not serving."""
        ends = {id(record): end for record, end in self.whole.running}
        records = [*self.whole.allocations, *(record for _, _, month in self.earlier() for record in month.allocations)]
        sums = dict.fromkeys(self.months, Fraction(0))
        for record in records:
            if record["namespace"] == "serving" or record["device_fraction"] != "1":
                continue
            ended = ends.get(id(record)) or datetime.fromisoformat(record["ended_at"])
            held = Interval(datetime.fromisoformat(record["started_at"]), ended)
            for name in self.months:
                piece = held.overlap(billing_month(name, ZONE))
                sums[name] += Fraction(piece.microseconds * record["quantity"], 3_600_000_000) if piece else 0
        return sums

    def tokens(self) -> dict[str, Decimal]:
        """Millions of tokens of each earlier month."""
        sums = {}
        for name, growth, _ in self.earlier():
            window = billing_month(name, ZONE)
            records = daily_tokens(window, growth.requests, window.end)
            sums[name] = Decimal(sum(item["input_tokens"] + item["output_tokens"] for item in records)) / 10**6
        return sums

    @property
    def days(self) -> int:
        """Whole days of the running month."""
        return (self.until - self.running.start) // timedelta(days=1)


@pytest.fixture(scope="module")
def facts(demonstration: tuple[Home, dict[str, Any]]) -> dict[str, Any]:
    """What the ledger of the demonstration holds beside the detailed month."""
    lines = demonstration[0].run("shell", "-v0", "-c", FACTS).stdout.splitlines()
    return dict(json.loads(lines[-1]))


@pytest.fixture(scope="module")
def planned(demonstration: tuple[Home, dict[str, Any]]) -> Planned:
    _, reported = demonstration
    return Planned(reported["period"], datetime.fromisoformat(reported["until"]))


def test_five_months_are_closed_and_issued_and_one_runs(facts: dict[str, Any], planned: Planned) -> None:
    closed = [[name, "closed", 12] for name in planned.months]
    assert facts["months"] == [*closed, [next_month(planned.detailed), "open", 0]]
    days = [billing_month(name, ZONE).microseconds // 86_400_000_000 for name in planned.months]
    a_day = [Decimal(facts["totals"][name]) / length for name, length in zip(planned.months, days, strict=True)]
    assert a_day == sorted(a_day)
    assert a_day[0] * Decimal("1.5") < a_day[-1]
    earlier = [number for number in facts["numbers"] if number.startswith("AI-LAB-")]
    assert (len(earlier), len(facts["numbers"])) == (48, 60)


def test_every_month_bills_what_was_reported_of_it(facts: dict[str, Any], planned: Planned) -> None:
    for name, hours in planned.gpu_hours().items():
        assert abs(Fraction(facts["hours"][name]) - hours) < Fraction(1, 10_000), name
    for name, millions in planned.tokens().items():
        assert Decimal(facts["tokens"][name]) == millions, name


def test_tokens_became_cheaper_with_the_detailed_month(facts: dict[str, Any], planned: Planned) -> None:
    *earlier, last = planned.months
    assert facts["prices"] == [*([name, "2E+1"] for name in earlier), [last, "16"]]


def test_low_mfu_costs_in_every_month(facts: dict[str, Any], planned: Planned) -> None:
    assert facts["efficiency"] == [[name, reason] for name in planned.months for reason in ("penalty", "reward")]


def test_budgets_are_far_from_their_end_near_it_and_beyond(facts: dict[str, Any], planned: Planned) -> None:
    for team, percent in (("nlp", 60), ("ads", 95), ("support", 130)) if planned.days else ():
        amount, spent = map(Decimal, facts["budgets"][team])
        assert abs(spent - amount * percent / 100) <= 10, (team, amount, spent)
    assert len(facts["budgets"]) == 12


def test_a_day_without_end_is_unusual(facts: dict[str, Any], planned: Planned) -> None:
    yesterday = planned.running.start + timedelta(days=planned.days - 1)
    known = list(daily_tokens(planned.running, RUNNING.requests, planned.until))[-48:] if planned.days else []
    usual = sum(
        (item["input_tokens"] - item["cache_read_input_tokens"]) * 4 + item["cache_read_input_tokens"] * Decimal("0.8")
        + item["output_tokens"] * 16
        for item in known if (item["consumer"], item["model"]) == ("support-app", "deepseek-v3")
    ) / Decimal(10**6)  # fmt: skip
    found = [row[2:] for row in facts["unusual"] if row[:2] == ["support", "deepseek-v3"]]
    day = f"{yesterday.astimezone(ZoneInfo(ZONE)):%Y-%m-%d}"
    assert found == ([[day, str((usual + SPIKE).quantize(Decimal("0.01")))]] if planned.days else [])


def test_a_line_is_credited_by_two_persons_and_another_one_disputed(facts: dict[str, Any], planned: Planned) -> None:
    """The note is of the issuer of the months before, who charged the line."""
    before = planned.months[-2]
    number = f"AI-LAB-CN-{planned.until.astimezone(ZoneInfo(ZONE)).year}-000001"
    assert facts["notes"] == [[number, "multimodal", "-800.00", before, "finance", ["controller"]]]
    assert facts["disputes"] == [["cv", "open", "1250.00", before]]


def test_one_agent_is_silent_and_a_namespace_waits_for_an_owner(
    demonstration: tuple[Home, dict[str, Any]], facts: dict[str, Any], planned: Planned
) -> None:
    silent_since = planned.until - timedelta(hours=50)
    silent = [["agent", "lab-sz", silent_since.isoformat()]] if silent_since > planned.running.start else []
    assert facts["silent"] == silent
    report = json.loads(
        demonstration[0].run("period_report", next_month(planned.detailed), "--json", status=3).stdout, parse_float=Decimal
    )
    unowned = [item for item in report["exceptions"] if item["kind"] == "unowned_namespace"]
    held = min(max(planned.until - planned.running.start - timedelta(days=1), timedelta()), timedelta(days=2))
    seconds = Decimal(held // timedelta(seconds=1)) * 4 * Decimal("0.142857142857")
    assert [(item["subject"], item["blocks"]) for item in unowned] == ([("hq-1/hackathon", True)] if held else [])
    assert [abs(item["quantity"] - seconds) < Decimal("0.001") for item in unowned] == [True] * len(unowned)
    assert all(check["ok"] is not False for check in report["checks"])
    assert report["gpu_seconds"]["idle"] > 0


def test_carbon_follows_the_grid_of_each_site(facts: dict[str, Any]) -> None:
    grid = {"hq-1": Decimal("0.6361"), "lab-sz": Decimal("0.4042")}
    assert {cluster for cluster, _, _ in facts["energy"]} == set(grid)
    for cluster, kwh, kg in facts["energy"]:
        assert abs(Decimal(kg) - Decimal(kwh) * grid[cluster]) < Decimal("0.002")


def test_a_second_demonstration_in_the_same_home_changes_nothing(demonstration: tuple[Home, dict[str, Any]]) -> None:
    home, reported = demonstration
    again = json.loads(home.run("demo", "--no-serve", "--json").stdout)
    assert again["invoices"] == reported["invoices"]
    assert again["usage"] == reported["usage"]
    midnight_passed = 12 * 4 + 1
    assert again["ledger"]["token_records"] - reported["ledger"]["token_records"] in (0, midnight_passed)


def test_up_serves_reports_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home, port = Home(tmp_path), free_port()
    process = home.start("up", "--port", str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        _until_ready(url)
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{url}/", follow_redirects=True).status_code == 200
        assert httpx.get(f"{url}/api/v1/schema/").status_code == 200
        token = home.run("token_create", "gateway", "--scope", "usage:write", "--by", "admin").stdout.strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{url}/api/v1/usage/tokens", content=b"[]", headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (200, 0)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 3
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert re.search(r"sign in as admin with \S+", output)
        assert "Traceback" not in output
        gone, left = psutil.wait_procs(family, timeout=10)
        assert not left
        assert len(gone) == len(family)
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = Home(tmp_path).run("up", "--port", str(port), status=2)
        assert done.stderr.strip() == f"error: port {port} on 127.0.0.1 is in use: choose another with --port"


def _until_ready(url: str) -> None:
    def ready() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/readyz", timeout=5).status_code == httpx.codes.OK
        return False

    until(ready, 180)


def test_a_database_without_tables_or_out_of_reach_is_reported_in_one_line(tmp_path: Path) -> None:
    import subprocess
    import sys

    import psycopg

    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE without_tables")
    try:
        empty = url.rsplit("/", 1)[0] + "/without_tables"
        for given, says in ((empty, "manage.py migrate"), ("postgresql://x@127.0.0.1:1/x", "cannot be reached")):
            environment = {**Home(tmp_path).environment, "DATABASE_URL": given, "BROKER_URL": "redis://127.0.0.1:1/0"}
            done = subprocess.run(
                [sys.executable, "manage.py", "period_report", "2026-10"], env=environment, capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
            assert says in done.stderr
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP DATABASE without_tables")
