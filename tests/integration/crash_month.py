"""Months that are closed, issued, exported and corrected while workers and the database server are killed.

`python -m tests.integration.crash_month SEED`, in a SUANPAN_HOME of its own. Every step of every month is begun by forks
that die of it. At a statement chosen by the seed, before or after it was executed, one kills itself and the next one the
whole database server (the postmaster and every process of it), both with SIGKILL; where files are written, one more dies
before a file takes its name. After each death, with the server started again, what is stored and what lies in the export
folder is looked at; then the step is finished and the next one begins.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from filecmp import cmpfiles
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

MONTHS, TEAMS = ("2026-09", "2026-10"), 6
CLOSED_AT, CORRECTED_AT = datetime(2026, 11, 1, 0, 5, tzinfo=UTC), datetime(2026, 11, 12, 9, tzinfo=UTC)
STATEMENTS = {"close": 60, "issue": 9, "export": 30, "correct": 120}
"""How many statements each step has, roughly: fates lie among them."""
FILES = 4 * TEAMS + 7


def main(seed: int) -> None:
    """Kill at every step of every month, finish it, and compare with an export that nobody disturbed."""
    from billing.local.embedded import attach

    home = Path(os.environ["SUANPAN_HOME"])
    services = attach(home, need=("postgres",))
    os.environ.update(DATABASE_URL=services.database_url, DATABASE_OWNER_URL=services.database_owner_url)
    _make_the_months(home)
    chance, deaths = random.Random(seed), Counter[str]()
    for month in MONTHS:
        for step in STATEMENTS:
            for fate in ("worker", "database", "writing") if step == "export" else ("worker", "database"):
                deaths[f"{step}/{fate}"] += _round(home, month, step, fate, chance)
                if fate == "database":
                    services.release()
                    services = attach(home, need=("postgres",))
                    assert services.database_url == os.environ["DATABASE_URL"]
                _look(home / month)
            assert not _round(home, month, step, "none", chance)
        assert not _round(home / "undisturbed", month, "export", "none", chance)
        _same_files(home / month, home / "undisturbed" / month)
    _look(home / MONTHS[-1], finished=True)
    print(*(f"{fate}={count}" for fate, count in deaths.items()))
    services.release()


def _make_the_months(home: Path) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    from tests import factories
    from tests.factories.corrections import people

    call_command("migrate", verbosity=0, interactive=False)
    codes = [f"t{number}" for number in range(1, TEAMS + 1)]
    factories.apply(
        home, platform=None, price_versions=[{**factories.SET_UP["price_versions"][0], "valid_from": "2026-01-01"}],
        consumers=None, teams=[{"code": code, "name": code, "cost_center": f"CC-{code}"} for code in codes],
        ownership=[{"cluster": "hq-1", "namespace": code, "team": code, "valid_from": "2026-01-01"} for code in codes],
    )  # fmt: skip
    factories.ingest_allocations(
        *(
            factories.allocation_record(
                f"{month}-{number}", namespace=code, quantity=number, started_at=f"{month}-10T00:00:00Z",
                ended_at=f"{month}-10T03:00:00Z", observed_until=None,
            )
            for month in MONTHS
            for number, code in enumerate(codes, start=1)
        )
    )  # fmt: skip
    people()


def _round(home: Path, month: str, step: str, fate: str, chance: random.Random) -> bool:
    """A fork takes the step until it is done or its fate meets it; whether it died.

    Always a fork: libraries that write files keep threads, which no fork survives.
    """
    from django.db import connection, connections

    connections.close_all()
    last = FILES if fate == "writing" else STATEMENTS[step]
    point, executed = chance.randint(1, last), chance.random() < 0.5
    strike = _kill_database(home) if fate == "database" else _kill_this_process
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if fate != "none" else 0)
        try:
            if fate == "writing":
                _die_while_writing(point)
            connection.ensure_connection()
            with connection.execute_wrapper(_at(point if fate in ("worker", "database") else 0, strike, executed=executed)):
                STEPS[step](month, home / month)
            os._exit(0)
        except Exception:  # noqa: BLE001 - the edge of a process
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_database(home: Path) -> Callable[[], None]:
    """Kills the postmaster and every process of it; of the cluster in this home, which this process has started."""

    def kill() -> None:
        postmaster = psutil.Process(int((home / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0]))
        for process in [postmaster, *postmaster.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    return kill


def _at(point: int, strike: Callable[[], None], *, executed: bool) -> Callable[..., Any]:
    count = 0

    def execute(run: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal count
        count += 1
        if count == point and not executed:
            strike()
        result = run(sql, params, many, context)
        if count == point and executed:
            strike()
        return result

    return execute


def _die_while_writing(point: int) -> None:
    """Die in place of the `point`-th file's taking its name, when it is written and only its draft is there."""
    count, replace = 0, Path.replace

    def dying(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == point:
            _kill_this_process()
        return replace(self, target)

    Path.replace = dying  # type: ignore[method-assign,assignment]


def _close(month: str, out: Path) -> None:
    from billing.closing.services.closing import period_close

    period_close(month=month, actor="ops", now=CLOSED_AT)


def _issue(month: str, out: Path) -> None:
    from billing.invoices.services.invoices import invoices_issue

    invoices_issue(month=month, actor="ops", now=CLOSED_AT)


def _export(month: str, out: Path) -> None:
    from billing.exports.journal import Chart
    from billing.exports.services.focus import focus_export
    from billing.exports.services.journal import journal_export
    from billing.invoices.services.documents import invoices_export

    invoices_export(month=month, directory=out)
    focus_export(month=month, directory=out)
    journal_export(month=month, path=out / "journal.csv", chart=Chart())


def _correct(month: str, out: Path) -> None:
    """1.00 back on every invoice of the month, by two people, from wherever that was left."""
    from billing.corrections.services.corrections import correction_approve, correction_issue
    from billing.invoices.models import Correction, Invoice
    from tests.factories.corrections import draft, part

    for invoice in Invoice.objects.filter(period__month=month).order_by("sequence"):
        known = list(Correction.objects.order_by("id"))
        position = invoice.sequence - 1
        correction = known[position] if position < len(known) else draft(part("1.00"), number=str(invoice.number))
        if correction.status == Correction.Status.DRAFT:
            correction_approve(correction_id=correction.pk, actor="fin", now=CORRECTED_AT)
        correction_issue(correction_id=correction.pk, actor="fin", now=CORRECTED_AT)


STEPS: dict[str, Callable[[str, Path], None]] = {
    "close": _close, "issue": _issue, "export": _export, "correct": _correct,
}  # fmt: skip


def _look(out: Path, *, finished: bool = False) -> None:
    """Periods are closed with all they bill or not at all, series have no gap, files are whole."""
    from django.db import connections

    from billing.corrections.services.proof import period_verify
    from billing.invoices.models import BillingPeriod, Invoice, Note, NumberSeries
    from billing.rating.models import Charge
    from billing.usage.models import Close

    connections.close_all()
    _until_the_database_answers()
    closed = list(BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED))
    charges = Charge.objects.filter(close_seq__in=[period.close_seq for period in closed])
    assert (Invoice.objects.count(), charges.count()) == (TEAMS * len(closed), TEAMS * len(closed))
    assert Close.objects.count() == BillingPeriod.objects.exclude(status=BillingPeriod.Status.OPEN).count()
    for kind, mark, model in (("invoice", "", Invoice), ("credit", "CN-", Note)):
        documents = list(model.objects.filter(number__isnull=False).order_by("sequence"))
        assert [one.number for one in documents] == [f"AI-INFRA-{mark}2026-{n:06d}" for n in range(1, len(documents) + 1)]
        previous = ""
        for one in documents:
            assert (one.previous_sha256, one.sha256) == (previous, sha256(one.document.encode()).hexdigest())
            previous = one.sha256
        series = NumberSeries.objects.filter(kind=kind, last_number__gt=0).first()
        assert (series.last_number, series.last_sha256) == (len(documents), previous) if series else not documents
        assert len(documents) == TEAMS * len(MONTHS) or not finished
    for period in closed:
        assert sum(invoice.total for invoice in period.invoices.all()) == 3 * 10 * TEAMS * (TEAMS + 1) // 2
        assert all(proof.holds for proof in period_verify(month=period.month))
    for path in sorted(out.glob("[!.]*")) if out.exists() else ():
        body = path.read_bytes()
        start, end = {
            ".pdf": (b"%PDF", b"%%EOF"), ".xlsx": (b"PK", b""), ".parquet": (b"PAR1", b"PAR1"), ".json": (b"{", b"}"),
        }.get(path.suffix, (b"", b"\n"))  # fmt: skip
        assert body.startswith(start), path
        assert body.rstrip(b"\n" if path.suffix == ".pdf" else b"").endswith(end), path


def _until_the_database_answers() -> None:
    from django.db import OperationalError, connection

    deadline = time.monotonic() + 60
    while True:
        try:
            connection.ensure_connection()
        except OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in other.iterdir())
    assert len(names) == FILES
    assert sorted(path.name for path in one.glob("[!.]*")) == names
    assert cmpfiles(one, other, names, shallow=False) == (names, [], [])


if __name__ == "__main__":
    main(int(sys.argv[1]))
