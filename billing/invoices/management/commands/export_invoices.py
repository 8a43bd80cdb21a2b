"""`manage.py export_invoices 2026-10 --out DIR`"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import teams_without_invoice
from billing.invoices.services.documents import invoices_export, issued_so_far
from billing.tenancy.app_command import DONE, AppCommand, fail, number_of, operator, progress
from billing.tenancy.audit import export_record


class Command(AppCommand):
    help = "Write PDF, CSV and XLSX of each issued invoice and note of the month; teams without one are named."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="DIR")
        parser.add_argument("--language", choices=("zh-en", "zh", "en"), default="zh-en")
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, out: Path, language: str, json: bool, by: str | None, **_: Any) -> int:
        actor = operator(by, needed=False)
        period = BillingPeriod.objects.filter(month=month).first()
        if period is None:
            fail(f"month {month!r}: no such period")
        issued, missing = len(issued_so_far(month)), teams_without_invoice(period)
        if not issued and missing:
            fail(f"month {month!r}: no invoice is issued yet; `manage.py invoice_issue {month}` does that")
        if not issued:
            fail(f"month {month!r}: no document of it is issued")
        try:
            written = invoices_export(
                month=month, directory=out, language=language, advance=progress(issued, "writing invoices")
            )
        except OSError as error:
            fail(f"--out {out}: {error.strerror or error}")
        export_record(actor=actor, what=f"invoices {month}", detail={"invoices": issued, "files": len(written)})
        if json:
            self.print_json({
                "period": month, "status": period.status, "documents": [str(path) for path in written],
                "not_issued": missing,
            })  # fmt: skip
            return DONE
        self.say(f"{number_of(len(written), 'file')} of {number_of(issued, 'document')} in {out}")
        for team in missing:
            self.say(f"  not in it: the invoice of {team}, which is not issued")
        if period.status == BillingPeriod.Status.OPEN:
            self.say(f"  {month} is open: its invoices are to come")
        return DONE
