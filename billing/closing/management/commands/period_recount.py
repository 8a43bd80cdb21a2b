"""`manage.py period_recount 2026-10 --tokens records.parquet`"""

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from billing.invoices.models import BillingPeriod
from billing.rating.recount import Difference, Recount, tokens_recount
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, amount_text, fail
from billing.usage.files import UsageFileError
from metering.intervals import Interval

MOST = 20
"""Differences that are printed one by one; --json has them all."""


class Command(AppCommand):
    help = "Charge a closed month's tokens anew from a Parquet file of their records; 3 if a line is not as it was billed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("month", metavar="2026-10")
        parser.add_argument("--tokens", type=Path, required=True, metavar="FILE", help="token records, all of the month")
        self.add_json(parser)

    def run(self, *, month: str, tokens: Path, json: bool, **_: Any) -> int:
        period = BillingPeriod.objects.filter(month=month, status=BillingPeriod.Status.CLOSED).first()
        if period is None or period.close_seq is None:
            fail(f"month {month!r}: is not closed")
        window = Interval(period.start, period.end)
        try:
            found = tokens_recount(path=tokens, window=window, zone=period.zone, close_seq=period.close_seq)
        except UsageFileError as error:
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


def _document(item: Difference) -> str:
    billed, recounted = (
        "no line" if figures is None else f"{figures[0].normalize():f} at {figures[1].normalize():f}"
        for figures in (item.billed, item.recounted)
    )
    return f"billed {billed}, the file has {recounted}"


def _as_json(found: Recount) -> dict[str, Any]:
    """The amount and the prices as decimal strings, tokens as they are counted."""
    document = asdict(found) | {"amount": amount_text(found.amount)}
    for row in document["differences"]:
        for side in ("billed", "recounted"):
            row[side] = row[side] and (int(row[side][0]), amount_text(row[side][1].normalize()))
    return document
