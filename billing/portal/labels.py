"""Labels of codes on pages: the tables of every package under one name each, and those that only pages have."""

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from billing.budgets import labels as budgets
from billing.closing import labels as closing
from billing.corrections import labels as corrections
from billing.invoices import labels as invoices
from billing.portal.audit_words import AUDIT
from billing.portal.input_names import NAMES
from billing.rates import labels as rates
from billing.rating import labels as rating
from billing.tenancy import labels as tenancy
from billing.tenancy.holdings import HOLDING
from billing.usage import labels as usage

MINUS: Final = "\N{MINUS SIGN}"
NOTHING: Final = "\N{EM DASH}"
LABELS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "period_status": invoices.PERIOD_STATUS,
    "reopening_status": closing.REOPENING_STATUS,
    "document_state": invoices.DOCUMENT_STATE,
    "billing_mode": invoices.BILLING_MODE,
    "document_kind": invoices.DOCUMENT_KIND,
    "document_part": {**invoices.DOCUMENT_STATE, **invoices.NOTES},
    "correction_status": invoices.CORRECTION_STATUS,
    "correction_reason": invoices.CORRECTION_REASON,
    "dispute_reason": corrections.DISPUTE_REASON,
    "dispute_status": corrections.DISPUTE_STATUS,
    "dispute_step": corrections.DISPUTE_STEP,
    "note_style": invoices.NOTE_STYLE,
    "operation_status": invoices.OPERATION_STATUS,
    "operation_kind": closing.OPERATION_KIND,
    "exception_owner": closing.EXCEPTION_OWNER,
    "quarantine_reason": usage.QUARANTINE_REASON,
    "end_reason": usage.END_REASON,
    "price_draft_state": rates.PRICE_DRAFT_STATE,
    "price_draft_action": rates.PRICE_DRAFT_ACTION,
    "price_part": rates.PRICE_PART,
    "price_input": {name: _(words) for name, words in NAMES.items()},
    "token_method": rates.TOKEN_METHOD,
    "commitment_state": rates.COMMITMENT_STATE,
    "line_kind": rating.LINE_KIND,
    "section": rating.SECTION,
    "line_reason": rating.LINE_REASON,
    "change_kind": rating.CHANGE_KIND,
    "change_status": rating.CHANGE_STATUS,
    "budget_period": budgets.BUDGET_PERIOD,
    "alert_basis": budgets.ALERT_BASIS,
    "alert_kind": budgets.ALERT_KIND,
    "alert_level": budgets.ALERT_LEVEL,
    "feedback": budgets.FEEDBACK,
    "forecast_method": budgets.FORECAST_METHOD,
    "action": budgets.ACTION,
    "audit": AUDIT,
    "holding": HOLDING,
    "team_fact": tenancy.TEAM_FACT,
    "by": {
        "team": _("Team"), "namespace": _("Namespace"), "workload": _("Workload"), "queue": _("Queue"), "model": _("Model"),
        "consumer": _("Consumer"), "accelerator": _("Accelerator"), "site": _("Cluster"),
    },
    "nameless": {
        "team": _("Without a team"),
        "namespace": _("Tokens, which have no namespace"),
        "workload": _("Not of one workload: tokens, late usage"),
        "queue": _("Without a queue"),
        "consumer": _("Devices, and tokens billed for all consumers of a team"),
        "model": _("Devices, which have no model"),
        "accelerator": _("Tokens, which have no accelerator"),
        "site": _("Tokens, which have no cluster"),
    },
    "effect": {
        "before": _("Before"), "after": _("Now"), "price": _("Price"), "usage": _("Usage"), "begun": _("Use begun"),
        "ended": _("Use ended"), "efficiency": _("Efficiency"), "interruption": _("Interruptions"), "late": _("Late usage"),
        "credit": _("Credit notes and rebills"), "commitment": _("Commitments"), "idle": _("Idle capacity"),
        "shared": _("Shared cost"),
    },
    "step": {
        "billing": _("Billing set-up"), "teams": _("Teams"), "cluster": _("First cluster"), "gateway": _("First gateway"),
        "owners": _("Owners"), "price": _("First price"), "close": _("First close"), "invoice": _("First invoice"),
    },
    "approved_by": {"review: none": _("Nobody: drafts are not reviewed")},
    "role": tenancy.ROLE,
    "stage": {
        "preview": _("Open, live preview"), "closing": _("Closing"), "closed": _("Closed, not all issued"),
        "issued": _("Issued"),
    },
    "heat": {"devices": _("Devices in use, on average"), "tokens": _("Tokens an hour, on average")},
}  # fmt: skip
