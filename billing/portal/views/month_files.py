"""Files of a month: all its documents as one archive, the journal for the ledger, and FOCUS."""

import zipfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from billing.closing.services.operations import operation_request
from billing.closing.tasks import operation_wake
from billing.exports.journal import Chart
from billing.exports.services.focus_rows import KIND, FocusNotReadyError, focus_files
from billing.exports.services.journal import MOST_CHART_BYTES, chart_of, journal_export
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import teams_without_invoice
from billing.invoices.services.documents import documents_archive
from billing.portal.access import action_for, page, staff_action
from billing.portal.forms import PageForm
from billing.portal.months import period_shown
from billing.portal.views.closing import JournalForm, close_page
from billing.portal.views.invoices import list_page
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.actors import actor_of
from billing.tenancy.audit import export_record
from billing.tenancy.models import BillingSetup


@page
def documents(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Return every issued document of a month that the reader may see, as PDF, CSV and XLSX in one archive.

    The name of the archive says `incomplete` if invoices of these teams are still to come.
    """
    # a bound form without fields, so that a refusal of the service is shown as that of any form
    form, period, teams = PageForm({}), period_shown(month, setup), teams_visible_to(request.user)
    asked, codes = period.month, teams.values_list("code", flat=True)
    if not form.done(documents_archive, month=asked, teams=teams):
        return list_page(request, setup, form)
    export_record(actor=actor_of(request), what=f"documents {asked}")
    to_come = period.status == BillingPeriod.Status.OPEN or not set(codes).isdisjoint(teams_without_invoice(period))
    name = f"documents-{asked}{'-incomplete' if to_come else ''}.zip"
    named = {"Content-Disposition": f'attachment; filename="{name}"'}
    response: Any = StreamingHttpResponse(form.made, content_type="application/zip", headers=named)
    return response


@action_for(Right.CLOSE)
def journal(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Return the journal of a month's documents; from then on the ledger's acknowledgement is awaited.

    The name of the file says if the ledger has these journals already, posted with another chart.
    """
    period = period_shown(month, setup)
    form = JournalForm(request.POST, files=request.FILES, key="journal-file")
    now, actor = timezone.now(), actor_of(request)
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal.csv")

        def export(
            accounts: Any, accepted: bool, spreadsheet: bool, posting_date: date | None, **codes: str
        ) -> object:
            # one byte more than is allowed, so that a larger file is refused and not cut
            facts = chart_of(accounts.read(MOST_CHART_BYTES + 1), Path(accounts.name)) if accounts else {}
            given = {name: value for name, value in {**codes, "posting_date": posting_date}.items() if value}
            return journal_export(
                month=period.month, path=path, chart=Chart(**facts | given), exported_by=actor, now=now,
                accepted_at=now if accepted else None, spreadsheet=spreadsheet,
            )  # fmt: skip

        if not form.done(export):
            return close_page(request, setup, period.month, form)
        body = path.read_bytes()
    detail = {"journals": len(form.made.journals), "debit": str(form.made.debit)}
    export_record(actor=actor, what=f"journal {period.month}", detail=detail)
    name = f"journal-{period.month}{'-posted-with-another-chart' if form.made.posted_otherwise else ''}.csv"
    named = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(body, content_type="text/csv; charset=utf-8", headers=named)


@staff_action
def focus(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Return the FOCUS files of a month in one archive; a worker makes those of a large month first."""
    period, form, actor = period_shown(month, setup), PageForm({}, key="focus"), actor_of(request)

    def ask(documents: str) -> None:
        operation_request(
            kind=KIND, month=period.month, actor=actor, wake=operation_wake, parameters={"documents": documents}
        )

    with TemporaryDirectory() as folder:
        done = form.done(focus_files, month=period.month, directory=Path(folder), now=timezone.now(), request=ask)
        if isinstance(form.error, FocusNotReadyError):
            return redirect(f"{reverse('portal:close')}?month={period.month}#files-title")
        if not done:
            return close_page(request, setup, period.month, form)
        archive = _zipped(form.made)
    export_record(actor=actor, what=f"focus {period.month}", detail={"files": len(form.made)})
    name = f"focus-{period.month}.zip"
    response: Any = FileResponse(archive, as_attachment=True, filename=name, content_type="application/zip")
    return response


def _zipped(paths: Iterable[Path]) -> Any:
    target = TemporaryFile()  # noqa: SIM115  the response closes it
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.write(path, path.name)
    target.seek(0)
    return target
