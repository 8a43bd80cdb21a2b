"""The company of the scenarios: who does what on which day, and what its documents say afterwards, as one reads them.

Two teams, nlp (namespaces nlp-...) and cv, use H800 devices at 10.0000 CNY an hour, and 1M output tokens of llama-3-8b
cost nlp 8.0000. Sam and Lea work in finance, Fin and Head approve, Viv audits, Tom leads nlp and Kim leads cv. Days are
days in Shanghai, from midnight to midnight; "2026-10-10 06:00" is a time of a day. Each month closes on the morning
after its last day, at 08:05.
"""

import csv
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management import call_command

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.corrections.models import Dispute
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.corrections.services.disputes import Claim, dispute_open
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.exports.journal import Chart
from billing.exports.services.journal import journal_export
from billing.invoices.models import BillingPeriod, Correction, Invoice, Note
from billing.invoices.selectors import document_of, state_of
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.rating.models import RetroactiveChange
from metering.intervals import billing_month
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.corrections import people, proofs_hold

ZONE = "Asia/Shanghai"
DEVICE = "NVIDIA-H800"


def day(text: str) -> datetime:
    """A day, or a time of a day, in Shanghai."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(ZONE))


def morning_after(month: str) -> datetime:
    """When a month is closed and issued."""
    return billing_month(month, ZONE).end + timedelta(hours=8, minutes=5)


def price_list(name: str, since: str, *, gpu_hour: str, output: str = "8.0000") -> dict[str, Any]:
    """A complete price list from a day on."""
    return {
        "name": name, "valid_from": day(since).isoformat(),
        "gpu": [{"accelerator": DEVICE, "price_per_gpu_hour": gpu_hour}],
        "tokens": [{"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "output": output}],
    }  # fmt: skip


class Company:
    """Does what a scenario says, and reads its documents aloud."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.sections, self.reported = directory, dict[str, Any](), 0
        people()
        self.set_up(price_versions=[price_list("2026", "2026-01-01", gpu_hour="10.0000")])
        person("tom", "lead", team="nlp")
        person("kim", "lead", team="cv")

    # Before the month

    def set_up(self, **sections: Any) -> None:
        """Apply sections of the set-up file; the other ones stay as they are."""
        self.sections |= sections
        apply(self.directory, **self.sections)

    def company_rule(self, **rules: Any) -> None:
        """Rules of billing, such as `review="four-eyes"`."""
        self.set_up(billing={**SET_UP["billing"], **self.sections.get("billing", {}), **rules})

    def publishes(self, *lists: dict[str, Any]) -> None:
        """More price lists."""
        self.set_up(price_versions=[*self.sections["price_versions"], *lists])

    def gives(self, namespace: str, team: str, since: str) -> None:
        """A namespace is a team's from a day on."""
        owners = self.sections.get("ownership", SET_UP["ownership"])
        owner = {"cluster": "hq-1", "namespace": namespace, "team": team, "valid_from": day(since).isoformat()}
        self.set_up(ownership=[*owners, owner])

    def gives_key(self, team: str, since: str) -> None:
        """The gateway's key of nlp is another team's from a day on."""
        first = SET_UP["consumers"][0]
        self.set_up(consumers=[first, {**first, "team": team, "valid_from": day(since).isoformat()}])

    def employs(self, name: str, *roles: str) -> None:
        person(name, *roles)

    # Usage

    def uses(self, namespace: str, *, gpus: int, since: str, until: str, **facts: Any) -> None:
        """A new pod's devices are reported, from one time to another."""
        self.reported += 1
        self.report(self.reported, namespace, gpus=gpus, since=since, until=until, **facts)

    def report(self, pod: int, namespace: str, *, gpus: int, since: str, until: str | None, **facts: Any) -> Any:
        """What an agent says of one pod; without `until` it runs still, and `seen` is when it was seen last."""
        end = day(until).isoformat() if until else None
        seen = day(facts.pop("seen")).isoformat() if "seen" in facts else end
        ended = {} if until else {"end_reason": None}
        return ingest_allocations(allocation_record(
            pod, namespace=namespace, quantity=gpus, started_at=day(since).isoformat(), ended_at=end,
            observed_until=seen, **ended, **facts,
        ))  # fmt: skip

    def writes(self, *, output: int, on: str) -> None:
        """A model writes so many million tokens for nlp."""
        self.reported += 1
        ingest_tokens(token_record(
            self.reported, time=day(on).isoformat(), input_tokens=0, cache_read_input_tokens=0,
            reasoning_output_tokens=0, output_tokens=output * 1_000_000,
        ))  # fmt: skip

    # The end of the month

    def closes(self, month: str) -> int:
        """Close a month; how many drafts it has."""
        return period_close(month=month, actor="ops", now=morning_after(month)).invoices

    def issues(self, month: str) -> int:
        """Number and issue what is approved; how many invoices that are."""
        return invoices_issue(month=month, actor="ops", now=morning_after(month))

    def bills(self, month: str) -> None:
        """Close and issue a month."""
        self.closes(month)
        self.issues(month)

    def what_blocks(self, month: str) -> list[str]:
        """What a person has to solve before the month can close."""
        report = build_report(period_open(month=month), now=morning_after(month))
        return [f"{item.kind}: {item.subject}, {item.quantity.normalize():,f} {item.unit}" for item in report.blocking]

    def waives(self, month: str, kind: str, subject: str) -> None:
        """Somebody has looked at what blocks a close and answers for it."""
        call_command("exception_waive", month, kind, subject, reason="seen on the node itself", by="sam")

    def asks_to_reopen(self, month: str, *, by: str = "sam", because: str = "site B reported late") -> int:
        return int(reopening_request(month=month, reason=because, actor=by, now=morning_after(month)).pk)

    def reopens(self, month: str, *, asked_by: str = "sam", approved_by: str = "fin") -> None:
        asked = self.asks_to_reopen(month, by=asked_by)
        reopening_approve(reopening_id=asked, actor=approved_by, now=morning_after(month) + timedelta(hours=1))

    # Corrections

    def drafts_credit(
        self, number: str, *lines: LineCredit, on: str = "2026-11-12", by: str = "sam", because: str = "price"
    ) -> Correction:
        wanted = Wanted(because, "the list price was 9.5", "INC-17", by, day(on))
        return credit_note_draft(number=number, credits=lines, wanted=wanted)

    def credits(self, number: str, *lines: LineCredit, approved_by: str = "fin", **facts: Any) -> list[str]:
        """Ask for a credit, approve and issue it; the notes as they read."""
        return self.approves(self.drafts_credit(number, *lines, **facts), by=approved_by)

    def approves(self, correction: Correction, *, by: str, on: str = "2026-11-12") -> list[str]:
        correction_approve(correction_id=correction.pk, actor=by, now=day(on))
        correction_issue(correction_id=correction.pk, actor=by, now=day(on))
        return [line for note in correction.notes.order_by("kind", "id") for line in note_text(note)]

    def proposes_price(
        self, gpu_hour: str, *, since: str, until: str | None = None, on: str = "2026-11-12", name: str = "fix"
    ) -> RetroactiveChange:
        """Another price for time that is billed already."""
        return retroactive_propose(
            kind="price", name=name, fact={"gpu": [{"accelerator": DEVICE, "price": gpu_hour}]}, valid_from=day(since),
            valid_until=day(until) if until else None, reason="agreed", evidence="minutes", actor="sam", now=day(on),
        )  # fmt: skip

    def approves_change(self, change: RetroactiveChange, *, by: str = "fin", on: str = "2026-11-12") -> None:
        retroactive_approve(change_id=change.pk, actor=by, now=day(on))

    def disputes(
        self, number: str, *lines: int, amount: str | None = None, on: str = "2026-11-06", because: str = "sla"
    ) -> Dispute:
        """Tom says what is wrong with lines of a document."""
        claim = Claim(number, lines, because, "node lost at noon", "INC-9", None if amount is None else Decimal(amount))
        return dispute_open(claim=claim, actor="tom", now=day(on))

    # Documents

    def number(self, team: str, month: str) -> str:
        return str(Invoice.objects.get(team__code=team, period__month=month, number__isnull=False).number)

    def invoice(self, team: str, month: str) -> list[str]:
        """The lines of a team's invoice or draft, as they read, and their total."""
        invoice = Invoice.objects.exclude(status="void").get(team__code=team, period__month=month, shadow=False)
        return [*map(line_text, document_of(invoice)["lines"]), f"total {invoice.total}"]

    def status(self, month: str) -> str:
        return str(BillingPeriod.objects.get(month=month).status)

    def documents(self, month: str) -> int:
        return Invoice.objects.filter(period__month=month).count()

    def states(self, month: str) -> dict[str, str]:
        return {invoice.team.code: str(state_of(invoice)) for invoice in Invoice.objects.filter(period__month=month)}

    def state(self, number: str) -> str:
        return str(state_of(Invoice.objects.get(number=number)))

    def owes(self, team: str) -> str:
        """All issued invoices and notes of a team."""
        documents = [*Invoice.objects.filter(team__code=team, number__isnull=False),
                     *Note.objects.filter(team__code=team, number__isnull=False)]  # fmt: skip
        return str(sum((document.total for document in documents), Decimal("0.00")))

    def notes(self) -> list[str]:
        """Every note that was issued: number, team, total."""
        return [f"{note.number} {note.team.code} {note.total}" for note in Note.objects.order_by("kind", "sequence")]

    def document(self, team: str, month: str) -> dict[str, Any]:
        """Everything that an invoice or draft says."""
        return document_of(Invoice.objects.get(team__code=team, period__month=month))

    def note(self, number: str) -> list[str]:
        """The lines of a note, as they read."""
        return note_text(Note.objects.get(number=number))[1:]

    def document_line(self, number: str, line: int = 1) -> dict[str, Any]:
        """Everything that a note says in one of its lines."""
        return dict(document_of(Note.objects.get(number=number))["lines"][line - 1])

    def credits_of(self, number: str) -> tuple[str, str, int]:
        """Of which invoice a note is, and which document and line its first line credits."""
        document = document_of(Note.objects.get(number=number))
        credits = document["lines"][0]["credits"]
        return document["invoice"]["number"], credits["document"], credits["position"]

    def posts(self, month: str) -> dict[str, str]:
        """What the journal of a month charges, by document; its debits are its credits."""
        exported = journal_export(month=month, path=self.directory / "journal.csv", chart=Chart())
        assert exported.debit == exported.credit
        with (self.directory / "journal.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["account"] == "internal AI compute"]
        return {row["invoice_number"]: row["debit"] for row in rows}

    def proven(self, *months: str) -> bool:
        """Whether every document of the months follows again from its usage."""
        return all(proofs_hold(month) for month in months)


def whole(line: int = 1, **changed: Any) -> LineCredit:
    """A whole line, perhaps with another price or quantity."""
    return LineCredit(line, **{name: Decimal(value) for name, value in changed.items()})


def part(amount: str, line: int = 1) -> LineCredit:
    """An amount of a line."""
    return LineCredit(line, amount=Decimal(amount))


def note_text(note: Note) -> list[str]:
    """The lines of a note, as they read, below its number."""
    note.refresh_from_db()
    lines = [f"{line['style']}: {line_text(line)}" for line in document_of(note)["lines"]]
    return [f"{note.number}, {document_of(note)['period']['month']}", *lines]


def line_text(line: dict[str, Any]) -> str:
    """`20.962222 GPU-Hours of NVIDIA-H800 at 10.0000: 209.62`; late usage names its month."""
    late = f" (used in {line['charge_period']})" if line.get("charge_class") and "style" not in line else ""
    if line["quantity"] is None or line["unit_price"] is None:
        return f"{line['amount']}{late}"
    quantity = line["quantity"].rstrip("0").rstrip(".")
    what = f"{line['token_class']} of {line['sku']}" if line.get("token_class") else line["sku"]
    return f"{quantity} {line['unit']} of {what} at {line['unit_price']}: {line['amount']}{late}"
