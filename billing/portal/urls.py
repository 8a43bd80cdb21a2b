"""Addresses of the pages."""

from allauth.account.views import login as sign_in
from django.contrib.auth.views import LogoutView
from django.urls import path

from billing.portal.views import (
    budgets,
    changes,
    closing,
    corrections,
    disputes,
    invoices,
    overview,
    prices,
    reference,
    teams,
)

app_name = "portal"
urlpatterns = [
    path("login/", sign_in, name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("", overview.overview, name="overview"),
    path("teams/<str:code>/", teams.team, name="team"),
    path("teams/<str:code>/lines/<str:digest>/", teams.line, name="line"),
    path("teams/<str:code>/evidence/", teams.evidence, name="evidence"),
    path("invoices/", invoices.invoice_list, name="invoices"),
    path("invoices/<int:pk>/", invoices.invoice, name="invoice"),
    path("invoices/<int:pk>/proof/", invoices.proof, name="proof"),
    path("invoices/<int:pk>/download.<str:kind>", invoices.download, name="download"),
    path("corrections/", corrections.correction_list, name="corrections"),
    path("corrections/changes/", changes.change_list, name="changes"),
    path("corrections/changes/<int:pk>/<str:step>/", changes.change_step, name="change_step"),
    path("corrections/new/<int:pk>/", corrections.correction_new, name="correction_new"),
    path("corrections/<int:pk>/<str:step>/", corrections.correction_step, name="correction_step"),
    path("disputes/", disputes.dispute_list, name="disputes"),
    path("disputes/new/<int:pk>/", disputes.dispute_new, name="dispute_new"),
    path("disputes/<int:pk>/", disputes.dispute, name="dispute"),
    path("disputes/<int:pk>/<str:step>/", disputes.dispute_step, name="dispute_step"),
    path("notes/<int:pk>/", corrections.note, name="note"),
    path("notes/<int:pk>/download.<str:kind>", corrections.note_download, name="note_download"),
    path("budgets/", budgets.budget_list, name="budgets"),
    path("budgets/<int:pk>/", budgets.budget, name="budget"),
    path("budgets/<int:pk>/recipients/", budgets.recipients, name="budget_recipients"),
    path("budgets/<int:pk>/mute/", budgets.mute, name="budget_mute"),
    path("budgets/<int:pk>/mutes/<int:mute_pk>/end/", budgets.unmute, name="budget_unmute"),
    path("anomalies/", budgets.anomalies, name="anomalies"),
    path("anomalies/<int:pk>/feedback/", budgets.feedback, name="anomaly_feedback"),
    path("close/", closing.close, name="close"),
    path("close/<str:month>/operations/", closing.operation_start, name="operation_start"),
    path("operations/<int:pk>/", closing.operation, name="operation"),
    path("prices/", prices.prices, name="prices"),
    path("prices/compare/", prices.compare, name="price_compare"),
    path("prices/versions/<int:pk>/", prices.version, name="price_version"),
    path("prices/drafts/new/", prices.draft_new, name="price_draft_new"),
    path("prices/drafts/<int:pk>/", prices.draft, name="price_draft"),
    path("prices/drafts/<int:pk>/edit/", prices.draft_edit, name="price_draft_edit"),
    path("prices/drafts/<int:pk>/effect/", prices.draft_effect, name="price_draft_effect"),
    path("prices/drafts/<int:pk>/<str:step>/", prices.draft_step, name="price_draft_step"),
    path("prices/<str:kind>-<int:pk>.yaml", prices.price_file, name="price_file"),
    path("ownership/", reference.ownership, name="ownership"),
    path("quarantine/", reference.quarantine, name="quarantine"),
]
