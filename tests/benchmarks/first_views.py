"""First views of the portal's pages with the month of a thousand teams in the ledger (B9): p95 of the server's time.

Nothing is warm but what a running house keeps: the scheduler has assessed the month once, as it does every few minutes. Each
page is asked for as finance sees it and as the lead of one team does, while the month is open and after it is issued.
"""

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks import month
from tests.benchmarks.month import MONTH, Size

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]
TARGET_MS, VIEWS, TEAM = 300, 20, "t0007"
EMPTY = "2026-08"
"""A month without usage."""
PAGES = (
    "/", "/close/", "/spending/", f"/spending/?team={TEAM}", f"/teams/{TEAM}/", "/invoices/", "/recovery/", "/budgets/",
    "/anomalies/", "/prices/", "/ownership/", "/quarantine/", "/corrections/", "/disputes/", "/mails/", "/search/?q=t0007",
    "/audit/", "/planner/", "/prices/workbench/",
)  # fmt: skip
OF_A_TEAM = ("/", "/spending/", f"/teams/{TEAM}/", "/invoices/", "/budgets/")


def measure(home: Path, share: float) -> list[Row]:
    """Rows of the table: the slowest pages of each state, and what all of them stay under. `share`: of the full month."""
    size = Size().scaled(share)
    month.fill(size, home)
    rows = list(_views("open"))
    for command in ("period_close", "invoice_issue"):
        arguments = [sys.executable, "manage.py", command, MONTH, "--json"]
        subprocess.run(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return [(f"B9 with {size}", "p95 of the server's time", "", "", f"< {TARGET_MS} ms"), *rows, *_views("issued")]


def _views(state: str) -> Iterator[Row]:
    from billing.invoicing.tasks import months_assess

    print(f"assessing the {state} month: {_milliseconds(months_assess):,.0f} ms", flush=True)
    gc.collect()  # what the assessment left is a worker's, not that of a web process
    for name, client, pages in _people():
        for page in pages:
            path = page if "?" in page else f"{page}?month={MONTH}"
            _view(client, path.replace(MONTH, EMPTY))  # a web process has compiled its templates
            taken = [_view(client, path) for _ in range(VIEWS)]
            p95, own = (statistics.quantiles(column, n=20)[18] for column in zip(*taken, strict=True))
            told = f"first {taken[0][0]:7.0f} ms, p95 {p95:7.0f} ms, of which own processor {own:7.0f} ms"
            print(f"  {state} {name:8} {path:34} {told}", flush=True)
            if p95 >= TARGET_MS:
                measured = f"{p95:.0f} ms, {own:.0f} ms of it own processor"
                yield (f"B9 {state}, {name}: {path}", measured, "", f"{p95 / TARGET_MS:.2f}", f"< {TARGET_MS} ms")


def _view(client: Any, path: str) -> tuple[float, float]:
    """Milliseconds of one view in the server, sign-in apart; and of these the processor's for it, the database's apart."""
    started, used = time.perf_counter(), time.process_time()
    response = client.get(path)
    taken = (time.perf_counter() - started) * 1000
    assert response.status_code == 200, (path, response.status_code)
    return taken, (time.process_time() - used) * 1000


def _people() -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    from django.contrib.auth.models import User
    from django.test import Client

    from billing.tenancy.models import Membership, Team

    for name, role, pages in (("finance", "finance", PAGES), ("lead", "lead", OF_A_TEAM)):
        user, made = User.objects.get_or_create(username=f"bench-{name}")
        if made:
            team = None if role == "finance" else Team.objects.get(code=TEAM)
            Membership.objects.create(user=user, role=role, team=team)
        client = Client(headers={"host": os.environ.get("SUANPAN_HOST", "localhost")})
        client.force_login(user)
        yield name, client, pages


def _milliseconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
