"""Command `manage.py usage_seal 2026-10 --out s3://bucket/prefix --by USER`, or `usage_seal --verify`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.invoices.models import BillingPeriod
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator, progress
from billing.usage.archive.places import ArchiveError
from billing.usage.archive.sealed import Seal, seal_faults, seals
from billing.usage.services.sealing import ClosedMonth, SealError, usage_seal


class Command(AppCommand):
    help = (
        "Write a closed month's usage to an archive as Parquet, read it back, and note it in the audit log. "
        "Nothing is deleted. With --verify: whether sealed months are still what was noted; 3 if one is not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("month", metavar="2026-10", nargs="?")
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--out", metavar="URL", help="a folder, or s3://bucket/prefix?endpoint=https://host&region=x")
        which.add_argument("--verify", action="store_true", help="read what was sealed, of the month or of all")
        self.take(parser, "by", "json")

    def run(self, *, month: str | None, out: str | None, by: str | None, json: bool, **_: Any) -> int:
        if out is None:
            return self._verify(month, json=json)
        if month is None:
            fail("month: is missing")
        return self._seal(month, out, by, json=json)

    def _seal(self, month: str, out: str, by: str | None, *, json: bool) -> int:
        actor = operator(by, Right.CLOSE, Right.OPERATE)
        period = BillingPeriod.objects.filter(month=month, status=BillingPeriod.Status.CLOSED).first()
        if period is None:
            fail(f"month {month!r}: is not closed")
        closed = ClosedMonth(month, period.window, period.zone, period.close_number)
        bar = progress(None, f"sealing {month}")
        try:
            seal, made = usage_seal(closed=closed, address=out, actor=actor, now=timezone.now(), advance=bar)
        except ArchiveError as error:
            fail(f"--out {error}")
        except SealError as error:
            bar.close()
            self.say(str(error))
            return DECIDE
        finally:
            bar.close()
        if json:
            self.print_json({"period": month, "made": made, **_as_json(seal)})
        else:
            rows = ", ".join(f"{count:,} {kind}" for kind, count in seal.manifest["rows"].items())
            self.say(f"{seal.folder}: {rows}; {len(seal.manifest['files'])} files, {seal.bytes:,} bytes")
            self.say(f"  manifest {seal.manifest_sha256}" + ("" if made else " (was sealed already)"))
        return DONE

    def _verify(self, month: str | None, *, json: bool) -> int:
        found = seals(month)
        if not found:
            fail(f"month {month!r}: was never sealed" if month else "nothing was sealed yet")
        bar = progress(None, "reading")
        faults = [(seal, list(seal_faults(seal, bar))) for seal in found]
        bar.close()
        if json:
            self.print_json({"seals": [{"period": seal.month, **_as_json(seal), "faults": wrong} for seal, wrong in faults]})
        else:
            for seal, wrong in faults:
                self.say(f"  {'FAIL' if wrong else 'ok  '} {seal.month} {seal.address} {seal.folder}")
                for fault in wrong:
                    self.say(f"       {fault}")
        return DECIDE if any(wrong for _, wrong in faults) else DONE


def _as_json(seal: Seal) -> dict[str, Any]:
    return {
        "archive": seal.address, "folder": seal.folder, "close_seq": seal.close_seq, "before": seal.before,
        "manifest_sha256": seal.manifest_sha256, "sealed_at": seal.sealed_at,
    }  # fmt: skip
