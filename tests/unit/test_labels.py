"""Every enum that a page shows has a label for each of its codes, and a code of two enums has one in each."""

import re
from pathlib import Path

import pytest
from django.db.models import TextChoices
from django.utils.translation import override

from billing.budgets import labels as budgets
from billing.budgets.forecast import METHODS
from billing.budgets.models import Alert, Budget, CostAnomaly
from billing.budgets.thresholds import ACTIONS
from billing.closing import labels as closing
from billing.closing.exception_kinds import KINDS
from billing.closing.models import PeriodReopening
from billing.closing.services.operations import KINDS as OPERATIONS
from billing.corrections import labels as corrections
from billing.corrections.models import Dispute
from billing.invoices import labels as invoices
from billing.invoices.models import BillingPeriod, Correction, Invoice, Note, NoteLine, Operation
from billing.portal.labels import LABELS
from billing.portal.templatetags.portal import in_context, label
from billing.rates import labels as rates
from billing.rates.models import CommitmentDraft, PriceDraft
from billing.rates.price_list import GPU_PRICES
from billing.rates.services.drafts import PRICE_LIST
from billing.rating import labels as rating
from billing.rating.models import ChangeProposal, RetroactiveChange
from billing.tenancy import labels as tenancy
from billing.tenancy.models import Membership
from billing.usage import labels as usage
from billing.usage.models import QuarantinedRecord
from metering.allocation import EndReason
from pricing import tco
from pricing.efficiency import Form
from pricing.meters import LINE_KINDS
from pricing.rate_card import TOKEN_CLASSES
from pricing.token_sheet import METHODS as TOKEN_METHODS

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
ENUMS: list[tuple[type[TextChoices], dict[str, object]]] = [
    (BillingPeriod.Status, invoices.PERIOD_STATUS),
    (Invoice.Status, invoices.INVOICE_STATUS),
    (Correction.Status, invoices.CORRECTION_STATUS),
    (Correction.Reason, invoices.CORRECTION_REASON),
    (Dispute.Reason, corrections.DISPUTE_REASON),
    (Dispute.Status, corrections.DISPUTE_STATUS),
    (Note.Kind, invoices.NOTES),
    (NoteLine.Style, invoices.NOTE_STYLE),
    (Operation.Status, invoices.OPERATION_STATUS),
    (QuarantinedRecord.Reason, usage.QUARANTINE_REASON),
    (Membership.Role, tenancy.ROLE),
    (PriceDraft.State, rates.PRICE_DRAFT_STATE),
    (RetroactiveChange.Kind, rating.CHANGE_KIND),
    (Budget.Period, budgets.BUDGET_PERIOD),
    (Alert.Kind, budgets.ALERT_KIND),
    (Alert.Level, budgets.ALERT_LEVEL),
    (CostAnomaly.Feedback, budgets.FEEDBACK),
]


@pytest.mark.parametrize(("enum", "labels"), ENUMS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_every_code_of_an_enum_has_its_label_and_no_label_is_left_over(
    enum: type[TextChoices], labels: dict[str, object]
) -> None:
    assert set(map(str, labels)) == set(enum.values)


def test_every_word_for_the_state_of_a_proposal_and_every_step_has_its_label() -> None:
    assert set(rates.COMMITMENT_STATE) == CommitmentDraft.words()
    assert set(closing.REOPENING_STATUS) == PeriodReopening.words()
    assert set(rating.CHANGE_STATUS) == ChangeProposal.words()
    assert set(map(str, rates.PRICE_DRAFT_ACTION)) == set(PRICE_LIST.audit)


def test_lists_of_codes_that_are_no_enum_have_their_labels_too() -> None:
    assert set(rates.TOKEN_CLASS) == set(TOKEN_CLASSES)
    assert set(rates.POLICY_FORM) == set(Form)
    assert set(rates.TOKEN_METHOD) == set(TOKEN_METHODS)
    assert set(rates.PRICE_SOURCE) == set(GPU_PRICES)
    assert set(budgets.FORECAST_METHOD) == set(METHODS)
    assert set(budgets.ACTION) == set(ACTIONS)
    assert set(usage.END_REASON) == set(EndReason)
    assert set(closing.OPERATION_KIND) == set(OPERATIONS)
    assert {kind.owner for kind in KINDS.values()} == set(closing.EXCEPTION_OWNER)
    assert set(rating.LINE_KIND) == set(LINE_KINDS)


def test_each_component_of_a_gpu_hour_has_its_label() -> None:
    made = set(re.findall(r'Component\("(\w+)"', Path(str(tco.__file__)).read_text()))
    assert {"hardware", "energy_gap", "unsold", "reserve"} < made <= set(rates.PRICE_PART)


def test_a_code_of_two_enums_has_a_label_in_each() -> None:
    with override("en"):
        assert [label("price", table) for table in ("correction_reason", "change_kind", "effect", "step")] == [
            "Wrong price", "Prices", "Price", "First price",
        ]  # fmt: skip
        assert [label("consumer", table) for table in ("change_kind", "by")] == ["Owner of a consumer", "Consumer"]
        assert [label("approved", table) for table in ("document_state", "price_draft_state")] == ["Approved", "Published"]
        assert [label("commitment", table) for table in ("line_kind", "alert_basis")] == [
            "Commitments", "Spending with running jobs",
        ]  # fmt: skip
    with override("zh-hans"):
        assert [str(label("price", table)) for table in ("correction_reason", "change_kind")] == ["价格有误", "价格"]


def test_a_code_without_a_label_is_shown_as_it_is_and_a_table_that_nobody_knows_is_a_mistake() -> None:
    with override("en"):
        assert (label("neutral:short", "line_reason"), label("penalty:1.05", "line_reason")) == (
            "Neutral: job too short", "Penalty",
        )  # fmt: skip
        assert in_context("input", "0-8192") == "Input, prompts of 0-8192 tokens"
    assert label("another", "line_reason") == "another"
    with pytest.raises(KeyError):
        label("price", "reasons")


def test_templates_name_tables_that_exist_and_every_table_is_named() -> None:
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*.*") if path.suffix in (".html", ".txt")]
    named = {table for text in texts for table in re.findall(r"\|label:[\"'](\w+)[\"']", text)}
    named |= {table for text in texts for table in re.findall(r"family=[\"'](\w+)[\"']", text)}
    assert named == set(LABELS)
