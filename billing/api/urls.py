"""The API, version 1."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from billing.api import (
    budgets,
    commitments,
    credit_notes,
    events,
    focus,
    invoices,
    ledger,
    periods,
    prices,
    problems,
    quarantine,
    reopening,
    summary,
    usage,
)

app_name = "api"
urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("usage/tokens", usage.TokensDoor.as_view(), name="usage-tokens"),
    path("usage/gpu-allocations", usage.AllocationsDoor.as_view(), name="usage-gpu-allocations"),
    path("usage/capacity", usage.CapacityDoor.as_view(), name="usage-capacity"),
    path("usage/efficiency", usage.EfficiencyDoor.as_view(), name="usage-efficiency"),
    path("usage/watermarks", usage.WatermarksDoor.as_view(), name="usage-watermarks"),
    path("usage/engine-counters", usage.EngineCountersDoor.as_view(), name="usage-engine-counters"),
    path("usage/litellm", events.LitellmDoor.as_view(), name="usage-litellm"),
    path("events", events.EventsDoor.as_view(), name="events"),
    path("events/batch", events.EventsBatchDoor.as_view(), name="events-batch"),
    path("budgets", budgets.Budgets.as_view(), name="budgets"),
    path("budgets/check", budgets.BudgetCheckDoor.as_view(), name="budgets-check"),
    path("budgets/reservations", budgets.ReservationsDoor.as_view(), name="budgets-reservations"),
    re_path(
        r"^budgets/reservations/(?P<identity>[0-9a-f]{24})$", budgets.ReservationDoor.as_view(), name="budgets-reservation"
    ),
    path("usage/summary", summary.UsageSummary.as_view(), name="usage-summary"),
    path("quarantine", quarantine.Quarantine.as_view(), name="quarantine"),
    path("quarantine/<int:pk>", quarantine.QuarantineEntry.as_view(), name="quarantine-entry"),
    path("teams", invoices.Teams.as_view(), name="teams"),
    path("prices", invoices.Prices.as_view(), name="prices"),
    path("commitments", commitments.Commitments.as_view(), name="commitments"),
    path("commitments/drafts", commitments.CommitmentDrafts.as_view(), name="commitment-drafts"),
    path("commitments/drafts/<int:pk>/<str:step>", commitments.CommitmentDraftStep.as_view(), name="commitment-draft-step"),
    path("price-versions", prices.PriceVersionsDoor.as_view(), name="price-versions"),
    path("price-versions/<str:name>", prices.PriceVersionDoor.as_view(), name="price-version"),
    path("price-versions/<str:name>/diff", prices.PriceDiffDoor.as_view(), name="price-version-diff"),
    path("price-versions/<str:name>/effect", prices.PriceEffectDoor.as_view(), name="price-version-effect"),
    path("price-versions/<str:name>/file", prices.PriceFileDoor.as_view(), name="price-version-file"),
    path("price-versions/<str:name>/<str:step>", prices.PriceStepDoor.as_view(), name="price-version-step"),
    path("price-drafts", prices.PriceDraftsDoor.as_view(), name="price-drafts"),
    path("charges", invoices.Charges.as_view(), name="charges"),
    path("invoices", invoices.Invoices.as_view(), name="invoices"),
    re_path(
        r"^invoices/(?P<number>[^/]+?)(?:\.(?P<suffix>json|pdf|csv|xlsx))?$", invoices.InvoiceDocument.as_view(),
        name="invoice",
    ),
    path("credit-notes", credit_notes.CreditNotes.as_view(), name="credit-notes"),
    re_path(
        r"^credit-notes/(?P<number>[^/]+?)(?:\.(?P<suffix>json|pdf|csv|xlsx))?$", credit_notes.CreditNote.as_view(),
        name="credit-note",
    ),
    path("disputes", credit_notes.Disputes.as_view(), name="disputes"),
    path("disputes/<int:pk>", credit_notes.OneDispute.as_view(), name="dispute"),
    path("periods/<str:month>", invoices.Period.as_view(), name="period"),
    path("periods/<str:month>/accrual", invoices.PeriodAccrual.as_view(), name="period-accrual"),
    path("periods/<str:month>/report", invoices.PeriodReport.as_view(), name="period-report"),
    path("periods/<str:month>/meter-readings", periods.MeterReadings.as_view(), name="meter-readings"),
    path("periods/<str:month>/held-teams", periods.HeldTeams.as_view(), name="held-teams"),
    path("periods/<str:month>/reopenings", reopening.Reopenings.as_view(), name="period-reopenings"),
    path("periods/<str:month>/journal", ledger.JournalAcknowledgement.as_view(), name="journal"),
    path("focus/<str:month>", focus.FocusDoor.as_view(), name="focus"),
    re_path(r"^.*$", problems.not_found),
]  # fmt: skip
