"""A backup and its proof, beside PostgreSQL's own programs on the same database (B15).

A backup is a dump and a manifest of its instant; its proof is a restore whose rows, sums, chains and documents are compared
with that. The raw limit is what the dump and the restore take alone.
"""

import statistics
import subprocess
import sys
from pathlib import Path

from tests.benchmarks import month
from tests.benchmarks.month import MONTH, Size
from tests.benchmarks.processor import say, seconds_of

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]


def measure(home: Path, rounds: int, share: float) -> list[Row]:
    """Rows of the table. `share`: of the month of ten million token records that `close` closes."""
    from django.utils import timezone

    from billing.backup.dump import backup_take
    from billing.backup.programs import run

    size = Size().scaled(share)
    month.fill(size, home)
    for command in ("period_close", "invoice_issue"):
        subprocess.run([sys.executable, "manage.py", command, MONTH], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    taken, dumped, proven, restored = list[float](), list[float](), list[float](), list[float]()
    for number in range(rounds):
        plain, own = home / f"plain-{number}.dump", home / f"own-{number}.dump"
        dumped.append(seconds_of(run, "pg_dump", "--format=custom", "--no-privileges", f"--file={plain}"))
        taken.append(seconds_of(backup_take, path=own, now=timezone.now()))
        restored.append(seconds_of(_restored, plain))
        proven.append(seconds_of(_proven, own))
        found = seconds_of(_flipped_byte_found, own)
        written = own.stat().st_size
        last = [f"{times[-1]:.1f} s" for times in (taken, dumped, proven, restored)]
        say(f"round {number + 1}: {last[0]}, pg_dump {last[1]}; {last[2]}, pg_restore {last[3]}; a byte {found:.1f} s")
        for path in (plain, own):
            path.unlink()
    take, dump, prove, restore = (statistics.median(times) for times in (taken, dumped, proven, restored))
    return [
        (f"B15 backup with its manifest: {size}, {written / 1e6:.0f} MB", f"{take:.1f} s", f"{dump:.1f} s `pg_dump`",
         f"{take / dump:.2f}"),
        ("B15 the same restored and proven, row by row and document by document", f"{prove:.1f} s",
         f"{restore:.1f} s `pg_restore`", f"{prove / restore:.2f}"),
        ("B15 one flipped byte of it found", f"{found:.1f} s"),
    ]  # fmt: skip


def _restored(path: Path) -> None:
    """As the proof restores it, and no more."""
    from billing.backup.programs import run
    from billing.backup.restore import scratch_database

    with scratch_database() as name:
        run("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", str(path), database=name)


def _proven(path: Path) -> None:
    from billing.backup.restore import restore_check

    checked = restore_check(path=path)
    assert checked.problems == []
    assert checked.documents > 0


def _flipped_byte_found(path: Path) -> None:
    """The byte in the middle, turned by one bit; afterwards the file is as it was no more."""
    from billing.backup.restore import restore_check

    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert [problem[-15:] for problem in restore_check(path=path).problems] == ["SHA-256 differs"]
