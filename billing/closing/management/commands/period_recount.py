"""Command `manage.py period_recount 2026-10 --tokens records.parquet`, or `--sealed URL`."""

import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from billing.invoices.models import BillingPeriod
from billing.rating.recount import Difference, Recount, TokenEngine, tokens_recount
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, amount_text, fail, progress
from billing.usage.archive.places import ArchiveError, Folder, archive_at
from billing.usage.archive.sealed import sealed_files, seals
from billing.usage.files import UsageFileError
from billing.usage.token_file import file_token_sums
from billing.usage.token_spark import spark_token_sums

DUCKDB = "duckdb"
MOST = 20
"""Differences that are printed one by one; --json has them all."""


class Command(AppCommand):
    help = (
        "Charge a closed month's tokens anew by a second engine, from a Parquet file of their records or from its seal; "
        "3 if a line is not as it was billed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--tokens", type=Path, metavar="FILE", help="token records, all of the month")
        which.add_argument("--sealed", metavar="URL", help="the archive in which the month was sealed")
        parser.add_argument(
            "--engine", default=DUCKDB, metavar="NAME", help="duckdb, or spark://host:port that shares the archive"
        )
        self.take(parser, "month", "json")

    def run(self, *, month: str, tokens: Path | None, sealed: str | None, engine: str, json: bool, **_: Any) -> int:
        period = BillingPeriod.objects.filter(month=month, status=BillingPeriod.Status.CLOSED).first()
        if period is None or period.close_seq is None:
            fail(f"month {month!r}: is not closed")
        try:
            with _summing(period, tokens, sealed or "", engine) as sums:
                found = tokens_recount(
                    engine=sums, window=period.window, zone=period.zone, close_seq=period.close_seq
                )
        except (ArchiveError, UsageFileError) as error:
            fail(str(error))
        if json:
            self.print_json({"period": month, "holds": found.holds, **_as_json(found)})
        else:
            self._print(found)
        return DONE if found.holds else DECIDE

    def _print(self, found: Recount) -> None:
        for item in found.differences[:MOST]:
            line = f"{item.team:<16} {item.consumer} {item.model} {item.token_class} {item.price_version}"
            self.say(f"  {line}: {_document(item)}")
        if len(found.differences) > MOST:
            self.say(f"  and {len(found.differences) - MOST} more")
        for name in found.unowned:
            self.say(f"  {name}: nobody owns it")
        for missing in found.unpriced:
            self.say(f"  {missing.sku}: {missing.quantity} {missing.unit} have no price")
        self.say(
            f"{found.records:,} records give {found.lines:,} lines of {found.amount:,} in sum; "
            f"{len(found.differences):,} lines differ from what was billed"
        )


@contextmanager
def _summing(period: BillingPeriod, tokens: Path | None, sealed: str, engine: str) -> Iterator[TokenEngine]:
    """Yield an engine over a file, or over the files of the month's last seal in an archive, as far as its close knew."""
    if engine != DUCKDB and not engine.startswith("spark://"):
        fail(f"--engine {engine!r}: must be {DUCKDB} or spark://host:port")
    if engine != DUCKDB and tokens is not None:
        fail("--engine spark://... reads a seal: give --sealed URL")
    if tokens is not None:
        yield partial(file_token_sums, tokens)
        return
    archive = archive_at(sealed)
    found = [seal for seal in seals(period.month) if seal.close_seq == period.close_seq]
    if not found:
        raise ArchiveError(f"close {period.close_seq} of {period.month} was never sealed")
    here = [seal for seal in found if seal.address == archive.address]
    if engine != DUCKDB and not isinstance(archive, Folder):
        fail("--engine spark://... needs an archive in a folder that master, workers and this machine share")
    seal = replace((here or found)[-1], address=archive.address)  # a copy of an archive will do: its hashes are checked
    bar = progress(seal.bytes, "reading the seal")
    with tempfile.TemporaryDirectory() as scratch:
        files = sealed_files(seal, "tokens", Path(scratch), bar)
        bar.close()
        if engine == DUCKDB:
            yield partial(file_token_sums, files, before=period.close_number)
        else:
            yield partial(spark_token_sums, files, before=period.close_number, master=engine)


def _document(item: Difference) -> str:
    billed, recounted = (
        "no line" if figures is None else f"{figures[0].normalize():f} at {figures[1].normalize():f}"
        for figures in (item.billed, item.recounted)
    )
    return f"billed {billed}, the file has {recounted}"


def _as_json(found: Recount) -> dict[str, Any]:
    """Return the recount with amount and prices as decimal strings, tokens as integers."""
    document = asdict(found) | {"amount": amount_text(found.amount)}
    for row in document["differences"]:
        for side in ("billed", "recounted"):
            row[side] = row[side] and (int(row[side][0]), amount_text(row[side][1].normalize()))
    return document
