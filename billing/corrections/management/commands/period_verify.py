"""Command `manage.py period_verify 2026-10`."""

from argparse import ArgumentParser
from typing import Any

from billing.corrections.close_proof import closes_altered
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod
from billing.rating.rules import rules_of
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail


class Command(AppCommand):
    help = (
        "Rate closed months again from their usage and compare every document's hash, the usage with what was reported "
        "and what the close saw, and the closes with their periods and the audit log; 3 if one differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("month", metavar="2026-10", nargs="?")
        which.add_argument("--all", action="store_true", dest="every", help="every closed month, in the order of closes")
        self.take(parser, "json")

    def run(self, *, month: str | None, every: bool, json: bool, **_: Any) -> int:
        if month is not None:
            return self._verify(month, json=json)
        closed = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).order_by("close_seq")
        months = list(closed.values_list("month", flat=True))
        held = [self._verify(one, json=json) for one in months]
        return max([*held, self._verify_other_closes(months, json=json)])

    def _verify_other_closes(self, months: list[str], *, json: bool) -> int:
        """Report closes of open months, or of none: the reports of closed months do not include them."""
        faults = [fault for fault in closes_altered() if fault.month not in months]
        if json and faults:
            usage = [{"expected": fault.expected, "found": fault.found} for fault in faults]
            self.print_json({"period": None, "rules_of": None, "proofs": [], "usage": usage})
        for fault in () if json else faults:
            where = f"the closes of {fault.month}" if fault.month else "the closes"
            self.say(f"  FAIL {where}: {fault.expected} expected, found {fault.found}")
        return DECIDE if faults else DONE

    def _verify(self, month: str, *, json: bool) -> int:
        try:
            proofs = period_verify(month=month)
        except BillingPeriod.DoesNotExist:
            fail(f"month {month!r}: is not closed")
        release = rules_of(BillingPeriod.objects.get(month=month).close_number).release
        documents = [proof for proof in proofs if not proof.of_usage]
        changed = [proof for proof in proofs if proof.of_usage]
        if json:
            self.print_json({
                "period": month,
                "rules_of": release or None,
                "proofs": [
                    {"team": p.team, "number": p.number, "sha256": p.stored, "recomputed": p.recomputed, "ok": p.holds}
                    for p in documents
                ],
                "usage": [{"expected": p.stored, "found": p.recomputed} for p in changed],
            })  # fmt: skip
        else:
            for proof in documents:
                mark = "ok  " if proof.holds else "FAIL"
                self.say(f"  {mark} {proof.number or '(draft)':<24} {proof.team:<20} {proof.stored}")
            for proof in changed:
                self.say(f"  FAIL the usage of {month}: {proof.stored} expected, found {proof.recomputed}")
            rules = f", by the rules of {release}" if release else ""
            held = sum(proof.holds for proof in documents)
            self.say(f"{held} of {len(documents)} documents follow from their usage{rules}")
        return DONE if all(proof.holds for proof in proofs) else DECIDE
