"""`python -m tests.benchmarks`: runs in a home of its own, prints a table with machine and date, asserts counts."""

import argparse
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

PARTS = (
    "ingest", "parts", "ledger_size", "documents", "budget_check", "agent", "close", "first_views", "explorer", "backup",
    "seal", "growth",
)  # fmt: skip


def main() -> int:
    """Run the benchmarks in an empty home."""
    arguments = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--records", type=int, default=40_000, help="token records of a round")
    arguments.add_argument("--ledger", type=int, default=300_000, help="events in the ledger whose size is measured")
    arguments.add_argument(
        "--growth", type=int, nargs="+", default=[1_000_000, 10_000_000], metavar="EVENTS",
        help="events in the ledgers in which the same work is compared, the smallest first",
    )  # fmt: skip
    arguments.add_argument("--tokens", type=int, default=2_000_000, help="token records of the month that is sealed")
    arguments.add_argument(
        "--clickhouse", action="store_true", help="growth and seal: ClickHouse servers of this machine keep the records"
    )
    arguments.add_argument("--share", type=float, default=1.0, help="how much of the month of a thousand teams is closed")
    arguments.add_argument("--litellm", type=Path, help="a Python with litellm[proxy]: measured beside single events")
    arguments.add_argument("--only", choices=PARTS, help="one part of the table")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="suanpan-bench-") as home:
        os.environ.update(SUANPAN_HOME=home, DJANGO_SETTINGS_MODULE="billing.settings.base")
        os.environ.setdefault("SUANPAN_SERVERS", "wheels")  # the same on every machine
        os.environ.pop("DATABASE_URL", None)
        os.environ.pop("BROKER_URL", None)
        from billing.local.command_line import embedded_services

        with embedded_services():
            os.environ["DATABASE_URL"] = os.environ.pop("DATABASE_OWNER_URL")  # raw limits have tables of their own
            return _measure(Path(home), options)


def _measure(home: Path, options: argparse.Namespace) -> int:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    from tests.benchmarks import (
        agent,
        backup,
        budget_check,
        close,
        documents,
        explorer,
        first_views,
        growth,
        ingest,
        ledger_size,
        parts,
        seal,
    )
    from tests.benchmarks.month import Size

    large = Size(tokens=options.tokens).scaled(options.share)
    measured = {
        "ingest": lambda: ingest.measure(options.rounds, options.records, options.litellm),
        "parts": lambda: parts.measure(options.rounds, options.records),
        "ledger_size": lambda: ledger_size.measure(options.ledger),
        "documents": documents.measure,
        "budget_check": lambda: budget_check.measure(home),
        "agent": lambda: agent.measure(options.rounds),
        "close": lambda: close.measure(home, options.rounds, options.share),
        "first_views": lambda: first_views.measure(home, options.share),
        "explorer": lambda: explorer.measure(home, options.share),
        "backup": lambda: backup.measure(home, options.rounds, options.share),
        "seal": lambda: seal.measure(home, options.rounds, large, sharded=options.clickhouse),
        "growth": lambda: growth.measure(home, options.growth, options.records, sharded=options.clickhouse),
    }
    print(f"\n{_machine()}, {datetime.now(UTC):%Y-%m-%d}\n")
    print("| What | Measured | Raw limit of the same run | Ratio | Target |\n|---|---|---|---|---|", flush=True)
    for name, part in measured.items():
        for row in part() if options.only in (None, name) else ():
            print("| " + " | ".join([*row, "", ""][:5]) + " |", flush=True)
    return 0


def _machine() -> str:
    model = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}, PostgreSQL 18"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
