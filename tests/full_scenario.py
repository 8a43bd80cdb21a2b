"""An installation with something in every room, whose every name is chosen by whoever asks: pleasant ones to look at,
hostile ones to find the page that believes them.

October is closed and issued, with a credit note, a disputed line, a change of closed time that waits, judged jobs and an
anomaly; November is open, with usage that nobody owns and that has no price; a price list is being written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.utils import timezone

from billing.budgets.models import Budget, Channel, CostAnomaly
from billing.budgets.services import budgets_evaluate, feedback_put, mute_put, standings_refresh
from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.closing.services.waivers import exception_waive
from billing.corrections.models import Dispute
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.corrections.services.disputes import Claim, dispute_ask_evidence, dispute_open, dispute_triage
from billing.corrections.services.retroactive import retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import cost_sheet_put, price_draft_create
from billing.rating.models import RetroactiveChange
from billing.tenancy.models import Team
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.prices import SHEET
from tests.factories.usage import POLICY, hold, sample

CLOSED = datetime(2026, 11, 3, tzinfo=UTC)
PEOPLE = {"lead": "lead", "finance": "finance", "approver": "approver", "admin": "admin", "auditor": "auditor"}
Named = Callable[[str], str]


@dataclass(frozen=True)
class Scenario:
    """What is in it."""

    invoice: Invoice
    note: Note
    dispute: Dispute
    change: RetroactiveChange
    draft: PriceDraft
    finding: CostAnomaly


def build_scenario(directory: Path, named: Named, *, password: str | None = None) -> Scenario:
    """Fill an empty database; one person of each role signs in by the role's name."""
    _set_up(directory, named)
    for name, role in PEOPLE.items():
        person(name, role, team="nlp" if role == "lead" else None, password=password)
    person("other", "lead", team="cv", password=password)
    _usage_of_october(named)
    _usage_of_november(named)
    _waived(named)
    period_close(month="2026-10", actor="finance", now=CLOSED)
    now = max(timezone.now(), CLOSED)  # issued lately enough to be disputed
    invoices_issue(month="2026-10", actor="finance", now=now)
    invoice = Invoice.objects.get(team__code="nlp")
    return Scenario(
        invoice, _note(invoice, named, now), _dispute(invoice, named, now), _change(named, now), _draft(named),
        _watched(named),
    )  # fmt: skip


def _set_up(directory: Path, named: Named) -> None:
    first = SET_UP["price_versions"][0]
    gpu = [*first["gpu"], {"accelerator": named("accelerator"), "price_per_gpu_hour": "6.0000"}]
    tokens = [*first["tokens"], {**first["tokens"][0], "model": named("model")}]
    apply(
        directory,
        billing={**SET_UP["billing"], "issuer": named("issuer")[:64]},
        teams=[{"code": "nlp", "name": named("team"), "cost_center": named("cost-centre")[:64]},
               {"code": "cv", "name": "Vision", "cost_center": "CC-220"}],
        ownership=[*SET_UP["ownership"],
                   {"cluster": named("cluster"), "namespace": "*", "team": "nlp", "valid_from": "2026-01-01"}],
        consumers=[*SET_UP["consumers"], {"source": named("source")[:64], "consumer": named("consumer"), "team": "nlp",
                                          "valid_from": "2026-01-01"}],
        price_versions=[{**first, "name": named("version")[:64], "gpu": gpu, "tokens": tokens}],
        efficiency_policies=[{**POLICY, "name": named("policy")[:64]}],
        budgets=[{"team": "nlp", "amount": "300.00", "name": named("budget"), "owner": named("owner"),
                  "thresholds": [50, 80, 100]}],
    )  # fmt: skip
    cost_sheet_put(
        name=named("sheet")[:64], inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="admin"
    )


def _job(named: Named, number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    named_facts = {
        "namespace": f"nlp-{named('namespace')}", "pod": named("pod"),
        "workload": {"kind": named("kind"), "name": named("workload")},
        "queue": named("queue"), "node": named("node"), "site": named("site"), "pool": named("pool"),
        "priority_class": named("priority"), "scheduler": named("scheduler"), "labels": {"suanpan.io/note": named("label")},
    }  # fmt: skip
    return hold(number, start, end, **{**named_facts, **changed})


def _usage_of_october(named: Named) -> None:
    ingest_allocations(
        _job(named, 1, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", pod_uid=named("uid")),
        _job(named, 2, "2026-10-11T00:00:00Z", "2026-10-11T02:00:00Z", cluster=named("cluster"),
             accelerator=named("accelerator")),
        hold(3, "2026-10-12T00:00:00Z", "2026-10-12T01:00:00Z", quantity=2, namespace="cv"),
        _job(named, 4, "2026-10-12T00:00:00Z", "2026-10-12T03:00:00Z", quantity=2,
             workload={"kind": named("kind"), "name": named("wasteful")}),
    )  # fmt: skip
    sample("2026-10-12T00:00:00Z", "2026-10-12T03:00:00Z", "21600", "0.10", "0.15", uid="uid-4")
    ingest_tokens(
        token_record(1, input_tokens=2_000_000, output_tokens=500_000),
        token_record(2, source=named("source")[:64], consumer=named("consumer"), model=named("model"), site=named("site"),
                     provider=named("provider")),
        token_record(1, input_tokens=3_000_000, output_tokens=500_000, model=named("model")),  # conflicts with the first
    )  # fmt: skip


def _usage_of_november(named: Named) -> None:
    ingest_allocations(
        _job(named, 10, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z"),
        hold(11, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", namespace=named("nobodys"), quantity=1),
        _job(named, 12, "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", accelerator=named("priceless"), quantity=1),
    )
    ingest_tokens(
        token_record(10, time="2026-11-02T12:00:00+08:00"),
        token_record(11, time="2026-11-02T12:00:00+08:00", consumer=named("stranger")),
        token_record(12, time="2026-11-02T12:00:00+08:00", model=named("priceless")),
    )


def _waived(named: Named) -> None:
    period = period_open(month="2026-10")
    for item in build_report(period, now=CLOSED, thorough=False).blocking:
        exception_waive(
            period=period, kind=item.kind, subject=item.subject, reason=named("waiver"), actor="finance", now=CLOSED
        )


def _note(invoice: Invoice, named: Named, now: datetime) -> Note:
    wanted = Wanted("goodwill", named("reason"), named("evidence"), "finance", now)
    for position, issued in ((1, True), (2, False)):  # the second one waits
        credits = [LineCredit(position, Decimal("0.01"))]
        correction = credit_note_draft(number=str(invoice.number), credits=credits, wanted=wanted)
        if issued:
            correction_approve(correction_id=correction.pk, actor="approver", now=now)
            correction_issue(correction_id=correction.pk, actor="finance", now=now)
    return Note.objects.get(number__isnull=False)


def _dispute(invoice: Invoice, named: Named, now: datetime) -> Dispute:
    claim = Claim(str(invoice.number), [1], "sla", named("dispute"), named("proof"), Decimal("5.00"))
    dispute = dispute_open(claim=claim, actor="lead", now=now)
    dispute_triage(dispute_id=dispute.pk, actor="finance", now=now, text=named("triage"))
    return dispute_ask_evidence(dispute_id=dispute.pk, actor="finance", now=now, text=named("question"))


def _change(named: Named, now: datetime) -> RetroactiveChange:
    return retroactive_propose(
        kind="price", name=named("fix")[:64], fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "9"}]},
        evidence=named("ticket"), valid_from=datetime(2026, 9, 30, 16, tzinfo=UTC), valid_until=None,
        reason=named("why"), actor="finance", now=now,
    )  # fmt: skip


def _draft(named: Named) -> PriceDraft:
    return price_draft_create(
        name=named("draft")[:64], valid_from=PriceVersion.objects.get().valid_from + timedelta(days=3650), actor="admin",
        content={"gpu": [{"accelerator": named("accelerator"), "price_per_gpu_hour": "11"}]}, now=timezone.now(),
    )  # fmt: skip


def _watched(named: Named) -> CostAnomaly:
    """A budget of now that is nearly spent, reported to a channel, muted; an unusual day that somebody has judged."""
    now = timezone.now()
    start = (now - timedelta(hours=3)).isoformat()
    ingest_allocations(_job(named, 20, start, now.isoformat()), now=now)
    budget = Budget.objects.get()
    budget.channels.add(Channel.objects.create(name=named("channel"), url="json://127.0.0.1/secret"))
    standings_refresh(now=now)
    budgets_evaluate(now=now)
    mute_put(budget=budget, until=now + timedelta(days=1), reason=named("mute"), now=now, actor="lead")
    finding = CostAnomaly.objects.create(
        team=Team.objects.get(code="nlp"), kind="gpu", sku=named("accelerator"), day=now.date(), amount=90, median=10, mad=1,
        z=54, basis="own", found_at=now,
    )  # fmt: skip
    feedback_put(finding=finding, feedback="planned", note=named("feedback"), now=now, actor="lead")
    return finding


def pleasant(kind: str) -> str:
    """Names as people give them."""
    return {
        "team": "NLP Research", "cost-centre": "CC-210", "issuer": "AI-INFRA", "cluster": "bj-2", "namespace": "pretraining",
        "accelerator": "NVIDIA-A800", "model": "qwen3-32b", "budget": "Everything of NLP", "owner": "Li Mei",
        "source": "higress-bj", "consumer": "nlp-batch", "version": "2026-10", "policy": "bands-v1",
    }.get(kind, f"{kind}-1")  # fmt: skip


