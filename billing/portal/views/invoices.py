"""Invoices: the list, the document, its proof and its files."""

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.text import slugify

from billing.corrections.disputed import disputed_amount, disputes_of
from billing.corrections.services.proof import period_verify
from billing.explorer.labels import unknown_texts
from billing.invoices.acceptance import acceptance_of, due_of
from billing.invoices.annex import gathered_lines
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.selectors import document_of, mails_of, state_of, with_cost_center
from billing.invoices.services.documents import CONTENT_TYPES, document_file
from billing.invoices.services.mails import contacts_unsent
from billing.portal.access import invoice_or_404, page, staff_action
from billing.portal.asked import page_shown
from billing.portal.forms import PageForm
from billing.portal.htmx import HtmxRequest
from billing.portal.selectors import invoices_visible, notes_visible
from billing.portal.statements import lines_of
from billing.portal.tables import Column, Table, columns
from billing.portal.tables import download as download_table
from billing.portal.templatetags.portal import hours
from billing.portal.totals import invoice_totals
from billing.rating.rules import rules_of
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar
from pricing.commitments import UNUSED
from pricing.meters import line_kind
from pricing.rate_card import SLICE_HOURS

MONTHS_SHOWN = 36
LISTED = [
    Column("number"), Column("month", of="period.month"), Column("team", of="team.code"),
    Column("cost_center"), Column("status"),
    Column("mode", of=lambda invoice: "shadow" if invoice.shadow else "chargeback"), *columns("issued_at", "currency"),
    Column("total", "money"),
]  # fmt: skip


@page
def invoice_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the invoices and drafts that the user may see, searched by number or team."""
    file = download_table(request, {"invoices": lambda: Table.of("invoices", with_cost_center(_found(request)), LISTED)})
    return list_page(request, setup) if file is None else file


def _found(request: HttpRequest) -> QuerySet[Invoice]:
    invoices, wanted = invoices_visible(teams_visible_to(request.user)), request.GET.get("q", "").strip()
    named = Q(number__icontains=wanted) | Q(team__code__icontains=wanted) | Q(period__month=wanted)
    return invoices.filter(named) if wanted else invoices


def list_page(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    """Render the list; with a refused form, as a conflict."""
    invoices = _found(request)
    issued = invoices_visible(teams_visible_to(request.user)).filter(status=Invoice.Status.ISSUED)
    context = {
        "nav": "invoices", "setup": setup, "page": page_shown(request, invoices),
        "q": request.GET.get("q", "").strip(), "totals": invoice_totals(invoices), "refused": refused,
        "months": issued.order_by("-period__month").values_list("period__month", flat=True).distinct()[:MONTHS_SHOWN],
    }  # fmt: skip
    return render(request, "portal/invoices.html", context, status=409 if refused else 200)


@page
def invoice(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    found = invoice_or_404(request, pk)
    document = document_of(found)
    context = {
        "nav": "invoices", "setup": setup, "invoice": found, "document": document, "annex": gathered_lines(found).exists(),
        "sections": sections_of(document, _digests(found)), "unknown": unknown_texts(_unknown(document), hours),
        "notes": notes_visible(teams_visible_to(request.user)).filter(invoice=found), "state": state_of(found),
        "disputes": disputes_of().filter(invoice=found), "disputed": disputed_amount([found]),
        "mails": mails_of(found), "mail_is_set": settings.MAIL_CONFIGURED,
        "unsent": contacts_unsent(found, timezone.now()) if found.number else [],
        "acceptance": acceptance_of(
            found, zone=document["period"]["zone"], calendar=company_calendar(setup), now=timezone.now()
        ),
        "due": due_of(found, document["period"]["zone"], company_calendar(setup)),
        "may_dispute": found.number is not None and access_of(request.user).may(Right.DISPUTE, found.team),
    }  # fmt: skip
    return render(request, "portal/invoice.html", context)


def sections_of(document: dict[str, Any], digests: Mapping[int, str] | None = None) -> list[dict[str, Any]]:
    """Group the document's lines under its own subtotals: printed sums are never added up again.

    With `digests` (by position) a line has the page of its parts.
    """
    known = digests or {}
    lines = [{**line, "digest": known.get(line["position"])} for line in document["lines"]]
    return [
        {**subtotal, "lines": [line for line in lines if line["kind"] == subtotal["kind"]]}
        for subtotal in document["subtotals"]
    ]


def _unknown(document: Mapping[str, Any]) -> dict[str, Decimal]:
    """Sum what the document's energy and CO2 leave out, by the names of `unknown_texts`; only sums that exist."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for line in document["lines"]:
        if not line_kind(line["kind"]).takes_energy or line["reason"] == UNUSED:
            continue
        if line["energy_kwh"] is None:
            sums["slices_without_energy" if line["unit"] == SLICE_HOURS else "without_energy"] += Decimal(line["quantity"])
        elif line.get("co2_location_kg") is None and document.get("co2_location_kg"):
            sums["without_co2"] += Decimal(line["energy_kwh"])
    return sums if document["energy_kwh"] else {}


def _digests(found: Invoice) -> dict[int, str]:
    """Return the names of the lines' pages, by position; a voided draft has none: its lines are those of another one."""
    if found.status == Invoice.Status.VOID:
        return {}
    return {line.position: line.digest for line in lines_of(found)}


@staff_action
def proof(request: HtmxRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Rate the period again from its usage, and show if this document follows to the byte."""
    found = invoice_or_404(request, pk)
    if found.period.status != BillingPeriod.Status.CLOSED or found.status == Invoice.Status.VOID:
        raise Http404(f"period {found.period.month} is not closed, or the draft was voided")
    proofs = period_verify(month=found.period.month, usage=False)
    asked = (found.team.code, found.number, found.shadow)
    mine = next(item for item in proofs if (item.team, item.number, item.shadow) == asked)
    context = {
        "setup": setup, "invoice": found, "proof": mine, "proofs": proofs, "all_hold": all(p.holds for p in proofs),
        "release": rules_of(found.period.close_number).release,
    }  # fmt: skip
    return render(request, "portal/parts/proof.html" if request.htmx else "portal/proof.html", context)


@page
def download(request: HttpRequest, setup: BillingSetup, pk: int, kind: str) -> HttpResponse:
    """Return the document as a file; a draft is marked as one."""
    found = invoice_or_404(request, pk)
    name = slugify(found.number or f"draft-{found.period.month}-{found.team.code}") or f"invoice-{found.pk}"
    return download_of(kind, found, name)


def download_of(kind: str, stored: Invoice | Note, name: str) -> HttpResponse:
    """Return an invoice or note as a file to keep.  Raises Http404 for another kind of file."""
    if kind not in CONTENT_TYPES or (isinstance(stored, Note) and kind.startswith("consumers.")):
        raise Http404(f"no file of kind {kind!r}")
    named = {"Content-Disposition": f'attachment; filename="{name}.{kind}"'}
    return HttpResponse(document_file(stored, kind), content_type=CONTENT_TYPES[kind], headers=named)
