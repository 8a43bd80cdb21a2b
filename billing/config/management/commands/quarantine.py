"""`manage.py quarantine [--month 2026-10]` and `quarantine --dismiss ID --reason ...`"""

from argparse import ArgumentParser
from typing import Any

from billing.config.commands import DONE, HouseCommand, actor_of, fail
from billing.invoicing.selectors import period_of
from billing.tenancy.selectors import NoSetupError
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_dismiss


class Command(HouseCommand):
    help = "List records that could not enter the ledger, or decide that one is no usage."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", metavar="2026-10", help="only records of this month")
        parser.add_argument("--dismiss", type=int, metavar="ID", help="decide that this record is no usage")
        parser.add_argument("--reason", default="", help="why; needed to dismiss")
        self.add_actor(parser)
        self.add_json(parser)

    def run(
        self, *, month: str | None, dismiss: int | None, reason: str, by: str | None, json: bool, **_: Any
    ) -> int:
        if dismiss is not None:
            try:
                record = quarantine_dismiss(record_id=dismiss, actor=actor_of(by), resolution=reason)
            except (ValueError, QuarantinedRecord.DoesNotExist) as error:
                fail(f"--dismiss {dismiss}: {error}")
            self.say(f"dismissed {record.pk}: {record.error}")
            return DONE
        records = QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN).order_by("id")
        if month:
            try:
                period = period_of(month)
            except (NoSetupError, ValueError) as error:
                fail(str(error))
            records = records.filter(at__gte=period.start, at__lt=period.end)
        if json:
            fields = ("id", "door", "reporter", "reason", "error", "key", "record", "times_received")
            self.print_json({"records": list(records.values(*fields))})
            return DONE
        for record in records:
            self.say(f"{record.pk} {record.at:%Y-%m-%d %H:%M} {record.reason} {record.reporter}: {record.error}")
        self.say(f"{records.count()} records in quarantine")
        return DONE
