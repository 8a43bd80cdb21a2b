"""First views of the portal's pages with the month of a thousand teams in the ledger (B9): p95 of the server's time.

Nothing is warm but what a running installation keeps: the scheduler has assessed the month once, as it does every few
minutes. Each page, and each part of one that is loaded later, is asked for as finance, the lead of a team, an admin and an
auditor see it, while the month is running (by a clock that is set back), open, closed and issued. A web process answers,
with the collector of a web process.
"""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.benchmarks import month
from tests.benchmarks.month import MONTH, Size
from tests.benchmarks.web_process import Answer, WebProcess, session_of

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]
TARGET_MS, VIEWS, TEAM, QUERIES, QUERIES_OF_THE_CLOSE = 300, 20, "t0007", 30, 40
EMPTY = "2026-08"
"""A month without usage."""
HEAVY: Final = ("/", "/close/", "/spending/", "/recovery/", "/planner/", "/late/")
PAGES: Final = (
    *HEAVY, "/spending/?part=why", "/spending/?part=hours", "/spending/?by=namespace", "/spending/?by=model",
    "/spending/?by=workload", f"/spending/?team={TEAM}", f"/spending/?team={TEAM}&part=hours", f"/teams/{TEAM}/",
    "/invoices/", "/budgets/", "/budgets/new/", "/commitments/", "/anomalies/", "/prices/",
    "/prices/workbench/", "/prices/workbench/tokens/", "/ownership/", "/sources/", "/quarantine/", "/corrections/",
    "/corrections/changes/", "/disputes/", "/mails/", "/search/?q=t0007", "/audit/",
)  # fmt: skip
OF_A_TEAM: Final = (
    "/", "/late/", "/spending/", "/spending/?part=why", "/spending/?part=hours", "/spending/?by=workload", f"/teams/{TEAM}/",
    "/invoices/", "/budgets/", "/anomalies/", "/commitments/", "/planner/",
)  # fmt: skip
PEOPLE: Final = (("finance", PAGES), ("lead", OF_A_TEAM), ("admin", (*HEAVY, "/start/")), ("auditor", (*HEAVY, "/audit/")))
LINKED: Final = (
    (f"/teams/{TEAM}/", re.compile(r'href="(/teams/[^"?]+/lines/[0-9a-f]+/)')),
    ("/invoices/", re.compile(r'href="(/invoices/[0-9]+/)"')),
)
"""Pages whose addresses stand on others: the first and the last such address."""
RUNNING: Final = (
    "/", "/spending/", "/spending/?part=why", "/spending/?part=end", "/spending/?part=hours",
    f"/spending/?team={TEAM}&part=end", f"/teams/{TEAM}/", "/budgets/",
)  # fmt: skip
MIDDLE: Final = datetime(2026, 10, 20, 4, tzinfo=UTC)
STATES: Final = (("running", None), ("open", None), ("closed", "period_close"), ("issued", "invoice_issue"))


def measure(home: Path, share: float) -> list[Row]:
    """Rows of the table: what all pages of each state take, and the slowest. `share`: of the full month."""
    size = Size().scaled(share)
    month.fill(size, home)
    rows: list[Row] = [(f"B9 with {size}", "p95 of the server's time", "", "", f"< {TARGET_MS} ms")]
    for state, command in STATES:
        if command is not None:
            arguments = [sys.executable, "manage.py", command, MONTH, "--json"]
            subprocess.run(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        with patch("django.utils.timezone.now", lambda: MIDDLE) if state == "running" else nullcontext():
            rows += views_of(state)
    return rows


def views_of(state: str) -> list[Row]:
    """Ask for every page of a month in that state; every figure is printed, the table gets what is measured of all."""
    from django.utils import timezone

    from billing.budgets.services.outlook import days_store
    from billing.closing.services.snapshots import month_assess

    assessing = _milliseconds(lambda: month_assess(month=MONTH, now=timezone.now()))
    print(f"assessing the {state} month: {assessing:,.0f} ms", flush=True)
    if state == "running":
        print(f"storing its days: {_milliseconds(lambda: days_store(now=timezone.now())):,.0f} ms", flush=True)
    print(f"{'':60} {'p95':>6} {'own':>6} {'wait':>6} {'queries':>7} {'pauses':>6} {'full':>4}", flush=True)
    web, every, slow = WebProcess(), list[Answer](), list[Row]()
    for name, session, pages in _people():
        for page in RUNNING if state == "running" else [*pages, *_linked(web, session)]:
            path = _of_month(page)
            there = page in RUNNING or page in pages  # a single line or invoice is of no other month
            web.answer(path.replace(MONTH, EMPTY) if there else path, session)  # a web process has compiled its templates
            answers = [web.answer(path, session) for _ in range(VIEWS)]
            every += answers
            _print(f"  {state} {name:8} {page}", answers)
            slow += _too_slow(f"B9 {state}, {name}: {page}", answers)
    _print(f"  {state}, all of {len(every)} views", every)
    p95, own = _p95([answer.wall for answer in every]), _p95([answer.own for answer in every])
    reported = f"{p95:.0f} ms, own processor {own:.0f} ms"
    rows = [(f"B9 {state}: all pages", reported, "", f"{p95 / TARGET_MS:.2f}", f"< {TARGET_MS} ms"), *slow]
    return [*rows, *_sums_of(state)] if state in ("running", "open") else rows


def _sums_of(state: str) -> Iterator[Row]:
    """What the database takes for the month to date of one team, and of all: the sums that pages are made of."""
    from billing.closing.snapshots import snapshot_shown
    from billing.invoices.selectors import period_of
    from billing.tenancy.models import Team

    period = period_of(MONTH)
    preview = snapshot_shown(period)
    if preview is None:
        return  # a small part of the month is assessed for each view
    for name, teams, most in (("a team", Team.objects.filter(code=TEAM), 1), ("all teams", Team.objects.all(), 60)):
        kept = preview.teams.filter(team__in=teams.values("code")).values_list("sums", flat=True)
        p95 = _p95([_milliseconds(partial(list, kept.all())) for _ in range(VIEWS)])
        what = f"B9 {state}: month to date of {name}, in the database"
        yield (what, f"{p95:.1f} ms", "", f"{p95 / most:.2f}", f"<= {most} ms")


def _print(name: str, answers: Sequence[Answer]) -> None:
    own, waited = (statistics.median(getattr(answer, part) for answer in answers) for part in ("own", "waited"))
    p95, queries = _p95([answer.wall for answer in answers]), max(answer.queries for answer in answers)
    pause, full = max(answer.paused for answer in answers), sum(answer.full_collections for answer in answers)
    print(f"{name:60} {p95:6.0f} {own:6.0f} {waited:6.0f} {queries:7} {pause:6.1f} {full:4}", flush=True)


def _too_slow(name: str, answers: Sequence[Answer]) -> Iterator[Row]:
    p95, queries = _p95([answer.wall for answer in answers]), max(answer.queries for answer in answers)
    if p95 >= TARGET_MS:
        reported = f"{p95:.0f} ms, {_p95([answer.own for answer in answers]):.0f} ms of it own processor"
        yield (name, reported, "", f"{p95 / TARGET_MS:.2f}", f"< {TARGET_MS} ms")
    if queries > (most := QUERIES_OF_THE_CLOSE if "/close/" in name else QUERIES):
        yield (name, f"{queries} queries", "", f"{queries / most:.2f}", f"<= {most} queries")


def _linked(web: WebProcess, session: str) -> Iterator[str]:
    for page, link in LINKED:
        found = link.findall(web.page(_of_month(page), session))
        yield from dict.fromkeys([*found[:1], *found[-1:]])


def _of_month(page: str) -> str:
    return f"{page}{'&' if '?' in page else '?'}month={MONTH}"


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[18]


def _people() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    from django.contrib.auth.models import User

    from billing.tenancy.models import Membership, Team

    for role, pages in PEOPLE:
        user, made = User.objects.get_or_create(username=f"bench-{role}")
        if made:
            team = Team.objects.get(code=TEAM) if role == "lead" else None
            Membership.objects.create(user=user, role=role, team=team)
        yield role, session_of(user), pages


def _milliseconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
