"""Quarantine: records that could not enter the ledger, by cause and one by one, with the decision on each."""

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.portal.access import action_for, form_page_for, staff_page
from billing.portal.asked import chosen
from billing.portal.forms import PageForm, Text, acting
from billing.portal.selectors import QUARANTINE_SHOWN, quarantine_causes, quarantined
from billing.portal.tables import Column, Table, columns, download
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from billing.usage.archive.places import UnreadableArchiveError
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_decide_all, quarantine_dismiss, quarantine_replay
from billing.usage.services.replay import MOST_AT_ONCE, refusal_of
from billing.usage.side_by_side import RecordField, corrected_text, record_fields
from metering.messages import Message

RECORD = [
    *columns("received_at", "at", "door", "reporter", "reason", "error", "key", "status", "resolved_by", "resolution",
             "record", "corrected"), Column("times_received", "count"),
]  # fmt: skip
CAUSE = [*columns("reason", "reporter", "door"), Column("records", "count"), *columns("earliest", "latest")]
ACTIONS = [("replay", "replay"), ("dismiss", "dismiss")]


def _why() -> Text:
    return Text(label=_("Why"), max_length=2000)


class DecisionForm(PageForm):
    """Form of the decision on a record: replayed, corrected or as it came, or dismissed; and why.

    `rows`: the fields of the record; without them the record is one text.
    """

    action = forms.ChoiceField(choices=ACTIONS)
    record = Text(required=False, label=_("The record, corrected"), widget=forms.Textarea(attrs={
        "rows": 10, "cols": 60, "class": "mono", "spellcheck": "false",
    }))
    reason = _why()

    def __init__(self, entry: QuarantinedRecord, rows: list[RecordField] | None, data: Any = None) -> None:
        initial = {self.name_of_row(number): row.reported or "" for number, row in enumerate(rows or ())}
        super().__init__(data, key=entry.pk, initial={**initial, "record": entry.record})
        self.rows = rows
        for number, row in enumerate(rows or ()):
            widget = forms.TextInput(attrs={"class": "mono", "spellcheck": "false"})
            self.fields[self.name_of_row(number)] = Text(label=row.name, required=False, strip=False, widget=widget)
        # a POST without the inputs of the fields sends the record as one text
        self.as_text = rows is None or (data is not None and self.name_of_row(0) not in data)
        if not self.as_text:
            del self.fields["record"]

    @staticmethod
    def name_of_row(number: int) -> str:
        """Return the name of the input for a field of the record, because a field may have any name."""
        return f"value-{number}"

    @property
    def shown(self) -> list[tuple[RecordField, Any]]:
        """Return the fields with their inputs."""
        return [(row, self[self.name_of_row(number)]) for number, row in enumerate(self.rows or ())]

    @property
    def corrected(self) -> str | None:
        """Return the corrected record to replay, None for the original.  Raises ReplayError."""
        if self.as_text:
            return self.cleaned_data["record"] or None
        typed = {row.name: self.cleaned_data[self.name_of_row(number)] for number, row in enumerate(self.rows or ())}
        return corrected_text(self.rows or (), typed)


class CauseForm(PageForm):
    """Form of the decision on all open records of one cause, and why."""

    known_by = ("reason", "door", "reporter")
    reason = Text(widget=forms.HiddenInput)
    door = Text(widget=forms.HiddenInput, strip=False)
    reporter = Text(widget=forms.HiddenInput, strip=False)
    action = forms.ChoiceField(choices=ACTIONS)
    why = _why()


@staff_page
def quarantine(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the records that could not enter the ledger, with the reason."""
    status = _status(request)
    tables = {
        "records": lambda: Table.of("quarantine", quarantined(status, None)[0], RECORD),
        "causes": lambda: Table.of("quarantine-causes", quarantine_causes(), CAUSE),
    }
    file = download(request, tables)
    return _list(request, setup) if file is None else file


def _status(request: HttpRequest) -> str:
    return chosen(request, "status", QuarantinedRecord.Status.values, QuarantinedRecord.Status.OPEN)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    shown, now = _status(request), timezone.now()
    rows, total = quarantined(shown)
    causes = quarantine_causes() if shown == QuarantinedRecord.Status.OPEN else []
    context = {
        "nav": "quarantine", "setup": setup, "rows": [(row, refusal_of(row, now)) for row in rows], "total": total,
        "status": shown, "shown": QUARANTINE_SHOWN, "refused": refused, "most": MOST_AT_ONCE,
        "causes": [
            (cause, CauseForm(initial={name: getattr(cause, name) for name in CauseForm.known_by}).or_refused(refused))
            for cause in causes if cause.records > 1
        ],
    }  # fmt: skip
    return render(request, "portal/quarantine.html", context, status=409 if refused else 200)


@action_for(Right.OPERATE)
def decide_cause(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Replay or dismiss all open records of one cause; records that are refused again stay."""

    def decide(action: str, reason: str, door: str, reporter: str, why: str) -> object:
        return quarantine_decide_all(
            door=door, reporter=reporter, reason=reason, replay=action == "replay", why=why, **acting(request)
        )

    form = CauseForm(request.POST)
    if not form.done(decide):
        return _list(request, setup, form)
    _done, again = form.made
    if again is None:
        return redirect("portal:quarantine")
    form.refuse(again)
    return _list(request, setup, form)


@form_page_for(Right.READ)
def record(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show a record as a form, beside the ledger's; a POST replays or dismisses it."""
    if request.method == "POST" and not access_of(request.user).may(Right.OPERATE):
        raise PermissionDenied
    entry = get_object_or_404(QuarantinedRecord, pk=pk)
    rows, unreadable = _fields(entry)
    if request.method != "POST":
        return _record(request, setup, entry, DecisionForm(entry, rows), unreadable)
    form = DecisionForm(entry, rows, request.POST)
    form.is_valid()
    if "action" in form.errors:
        raise Http404(form.message)

    def decide(action: str, reason: str, **_fields: Any) -> object:
        if action == "dismiss":
            return quarantine_dismiss(record_id=pk, actor=actor_of(request), resolution=reason)
        return quarantine_replay(record_id=pk, reason=reason, corrected=form.corrected, **acting(request))

    return redirect("portal:quarantine") if form.done(decide) else _record(request, setup, entry, form, unreadable)


def _fields(entry: QuarantinedRecord) -> tuple[list[RecordField] | None, Message | None]:
    """Return the fields, and the reason why those of the ledger are missing if its archive cannot be read."""
    try:
        return record_fields(entry, timezone.now()), None
    except UnreadableArchiveError as error:
        return record_fields(entry, timezone.now(), with_ledger=False), error.message


def _record(
    request: HttpRequest, setup: BillingSetup, entry: QuarantinedRecord, form: DecisionForm, unreadable: Message | None
) -> HttpResponse:
    context = {
        "unreadable": unreadable,
        "nav": "quarantine", "setup": setup, "entry": entry, "why": refusal_of(entry, timezone.now()), "form": form,
        "refused": form if form.is_bound else None, "in_ledger": any(row.stored for row in form.rows or ()),
        "open": entry.status == QuarantinedRecord.Status.OPEN,
    }  # fmt: skip
    return render(request, "portal/quarantine_record.html", context, status=409 if form.is_bound else 200)
