"""Command `manage.py quarantine [--month 2026-10]`, `quarantine --dismiss ID --reason ...`, `quarantine --replay ID ...`."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.db.models import Count
from django.utils import timezone

from billing.invoices.selectors import period_of
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.usage.models import QuarantinedRecord
from billing.usage.services import ReplayError, quarantine_dismiss, quarantine_replay


class Command(AppCommand):
    help = "List records that could not enter the ledger, take one in corrected, or decide that one is no usage."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", metavar="2026-10", help="only records of this month")
        parser.add_argument("--dismiss", type=int, metavar="ID", help="decide that this record is no usage")
        parser.add_argument("--replay", type=int, metavar="ID", help="take this record into the ledger")
        parser.add_argument("--record", type=Path, metavar="FILE", help="with --replay: the corrected record, JSON")
        parser.add_argument("--reason", default="", help="why; needed to dismiss or replay")
        self.take(parser, "by", "json")

    def run(
        self, *, month: str | None, dismiss: int | None, replay: int | None, record: Path | None, reason: str,
        by: str | None, json: bool, **_: Any,
    ) -> int:  # fmt: skip
        if replay is not None:
            self._replay(replay, record, reason, operator(by, Right.OPERATE))
            return DONE
        if dismiss is not None:
            try:
                entry = quarantine_dismiss(record_id=dismiss, actor=operator(by, Right.OPERATE), resolution=reason)
            except (ValueError, QuarantinedRecord.DoesNotExist) as error:
                fail(f"--dismiss {dismiss}: {error}")
            self.say(f"dismissed {entry.pk}: {entry.error}")
            return DONE
        records = QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN).order_by("id")
        if month:
            period = period_of(month)
            records = records.filter(at__gte=period.start, at__lt=period.end)
        if json:
            fields = ("id", "door", "reporter", "reason", "error", "key", "record", "times_received")
            self.print_json({"records": list(records.values(*fields))})
            return DONE
        by_call = QuarantinedRecord.Reason.PAID_BY_CALL
        for entry in records.exclude(reason=by_call):
            self.say(f"{entry.pk} {entry.at:%Y-%m-%d %H:%M} {entry.reason} {entry.reporter}: {entry.error}")
        alike = records.filter(reason=by_call).order_by().values_list("reporter", "error").annotate(number=Count("id"))
        for reporter, why, number in alike.order_by("reporter", "error"):
            self.say(f"{number} x {by_call} {reporter}: {why}; dismiss them all on the page Quarantine")
        self.say(f"{records.count()} records in quarantine")
        return DONE

    def _replay(self, pk: int, file: Path | None, reason: str, actor: str) -> None:
        try:
            corrected = None if file is None else file.read_text(encoding="utf-8")
            entry = quarantine_replay(
                record_id=pk, actor=actor, reason=reason, now=timezone.now(), corrected=corrected
            )
        except (OSError, UnicodeDecodeError, ReplayError, QuarantinedRecord.DoesNotExist) as error:
            fail(f"--replay {pk}: {error}")
        self.say(f"taken into the ledger: {entry.pk} {entry.key}")
