"""`manage.py import_usage gpu|tokens|capacity|efficiency|engine FILE...`"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from billing.runtime.tables import place
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, progress
from billing.usage.files import KINDS, FileRecord, UsageFileError, read_records
from billing.usage.models import QuarantinedRecord
from billing.usage.services import (
    IngestOutcome,
    Reporter,
    allocations_ingest,
    capacity_ingest,
    efficiency_ingest,
    engine_readings_ingest,
    token_files_note,
    tokens_ingest,
)

BATCH = 10_000
INGEST: Mapping[str, Callable[..., IngestOutcome]] = {
    "gpu": partial(allocations_ingest, from_file=True), "tokens": tokens_ingest, "capacity": capacity_ingest,
    "efficiency": efficiency_ingest, "engine": engine_readings_ingest,
}  # fmt: skip


class Command(AppCommand):
    help = (
        "Import usage from CSV, CSV.gz, Parquet or XLSX. A file with an error is refused whole; what was imported before "
        "is recognised and changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=sorted(KINDS))
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument(
            "--until", help="end of the file's period: how far allocations with an empty ended_at were seen (RFC 3339)"
        )
        parser.add_argument("--sheet", metavar="NAME", help="sheet of an XLSX file (default: its first one)")
        self.take(parser, "json")

    def run(self, *, kind: str, files: list[Path], until: str | None, sheet: str | None, json: bool, **_: Any) -> int:
        read = partial(read_records, kind, until=_instant(until), sheet=sheet)
        try:
            counts = {path: self._validate(path, read(path)) for path in files}
        except UsageFileError as error:
            fail(str(error))
        outcomes = {path: self._import(kind, path, read(path), counts[path]) for path in files}
        if json:
            self.print_json({"files": [{"file": str(path), **outcome.answer()} for path, outcome in outcomes.items()]})
        for path, outcome in outcomes.items():
            if not json:
                self.say(
                    f"{path}: {outcome.accepted} accepted, {outcome.duplicates} duplicates, "
                    f"{outcome.conflicts} conflicts"
                )
            for refusal in outcome.refusals:
                self.stderr.write(f"{place(path, refusal.index)}: {refusal.error}")
            if not counts[path]:
                self.stderr.write(f"{path}: has no rows, there is nothing to import")
        return DECIDE if not all(counts.values()) or any(outcome.refusals for outcome in outcomes.values()) else DONE

    def _validate(self, path: Path, records: Iterator[FileRecord[Any]]) -> int:
        advance = progress(None, f"checking {path.name}")
        count = 0
        try:
            for count, _ in enumerate(records, start=1):
                if count % BATCH == 0:
                    advance(BATCH)
        finally:
            advance.close()
        return count

    def _import(self, kind: str, path: Path, records: Iterator[FileRecord[Any]], count: int) -> IngestOutcome:
        total = IngestOutcome()
        advance = progress(count, f"importing {path.name}")
        reporter = Reporter(
            f"file {path.name}", f"import_usage {kind}", future_limit_s=settings.FUTURE_TOLERANCE_SECONDS
        )
        for batch in _batches(records):
            outcome = _ingest(kind, batch, reporter)
            total.accepted += outcome.accepted
            total.duplicates += outcome.duplicates
            total.conflicts += outcome.conflicts
            total.refusals += outcome.refusals
            advance(len(batch))
        return total


def _ingest(kind: str, batch: list[FileRecord[Any]], reporter: Reporter) -> IngestOutcome:
    records = [(item.line, item.record, item.raw) for item in batch]
    outcome = INGEST[kind](records=records, reporter=reporter, now=timezone.now())
    if kind == "tokens":
        refused = {refusal.index for refusal in outcome.refusals if refusal.reason == QuarantinedRecord.Reason.FUTURE}
        token_files_note(item.record for item in batch if item.line not in refused)
    return outcome


def _batches(records: Iterator[FileRecord[Any]]) -> Iterator[list[FileRecord[Any]]]:
    while batch := list(islice(records, BATCH)):
        yield batch


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        fail(f"--until {text!r}: must be an RFC 3339 instant with an offset")
    if value.tzinfo is None:
        fail(f"--until {text!r}: has no offset")
    return value
