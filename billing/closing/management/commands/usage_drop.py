"""Command `manage.py usage_drop [2026-10] --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.db import ProgrammingError
from django.utils import timezone

from billing.invoices.models import BillingPeriod
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator, progress
from billing.tenancy.database_roles import as_owner
from billing.usage.archive.places import ArchiveError
from billing.usage.archive.rows import rows_in_ledger
from billing.usage.archive.sealed import seals
from billing.usage.services.archiving import records_archive
from billing.usage.services.sealing import ClosedMonth, SealError
from billing.usage.store.archived import archived_months
from billing.usage.store.parts import part_waits
from metering.intervals import month_of, next_month

OWNER = "takes the role of DATABASE_OWNER_URL: the application may remove no record"


class Command(AppCommand):
    help = (
        "Remove the token records of closed and sealed months that are older than TOKEN_RETENTION_MONTHS from the database; "
        "the key of each stays. Only what the archive has, to the last byte, is removed; 3 if something differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("month", metavar="2026-10", nargs="?", help="only this month")
        self.take(parser, "by", "json")

    def run(self, *, month: str | None, by: str | None, json: bool, **_: Any) -> int:
        actor = operator(by, Right.CLOSE, Right.OPERATE)
        if not settings.TOKEN_RETENTION_MONTHS:
            fail("TOKEN_RETENTION_MONTHS is 0: records are kept for ever")
        periods = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).order_by("month")
        old = [period for period in periods if _is_old(period) and month in (None, period.month)]
        left = {
            item.month for item in archived_months()
            if not rows_in_ledger("tokens", item.window, item.before) and not part_waits(item.window)
        }  # fmt: skip
        if month is not None and not old:
            fail(f"month {month!r}: is not closed, or not older than {settings.TOKEN_RETENTION_MONTHS} months")
        faults, gone = [], {}
        for period in (period for period in old if period.month not in left):
            try:
                gone[period.month] = self._drop(period, actor)
            except (ArchiveError, SealError) as error:
                faults.append(str(error))
        if json:
            self.print_json({"removed": gone, "faults": faults})
        else:
            for name, records in gone.items():
                self.say(f"{name}: {records:,} records are in the archive only")
            for fault in faults:
                self.say(f"FAIL {fault}")
        return DECIDE if faults else DONE

    def _drop(self, period: BillingPeriod, actor: str) -> int:
        closed = ClosedMonth(period.month, period.window, period.zone, period.close_number)
        begun = {item.folder for item in archived_months() if item.month == period.month}
        # a removal that was interrupted continues with the seal it began with
        found = [seal for seal in seals(period.month) if not begun or seal.folder in begun]
        if not found:
            raise SealError(f"{period.month}: was never sealed; see `manage.py usage_seal`")
        bar = progress(None, f"removing {period.month}")
        try:
            with as_owner():
                return records_archive(closed=closed, seal=found[-1], actor=actor, advance=bar)
        except ProgrammingError as error:
            fail(f"usage_drop {OWNER} ({str(error).splitlines()[0]})")
        finally:
            bar.close()


def _is_old(period: BillingPeriod) -> bool:
    """Return True if TOKEN_RETENTION_MONTHS whole months lie between a month and the current one."""
    latest = period.month
    for _ in range(settings.TOKEN_RETENTION_MONTHS):
        latest = next_month(latest)
    return latest < month_of(timezone.now(), period.zone)
