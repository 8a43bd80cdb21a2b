"""Writes of budgets, their status, alerts, deliveries and anomalies."""

from billing.budgets.services.alerts import budgets_evaluate
from billing.budgets.services.budgets import (
    BudgetError,
    BudgetWish,
    ChannelWish,
    budget_new,
    budget_put,
    channel_put,
    mute_end,
    mute_put,
    recipients_put,
    thresholds_put,
)
from billing.budgets.services.changes import budget_change, budget_change_approve, budget_change_end
from billing.budgets.services.counters import counters_refresh
from billing.budgets.services.deliveries import alerts_deliver, channel_test
from billing.budgets.services.findings import feedback_put, findings_update
from billing.budgets.services.outlook import days_store, forecast_is_missing, forecasts_update
from billing.budgets.services.overrides import cap_override_approve, cap_override_ask, cap_override_end
from billing.budgets.services.standings import standings_refresh
from billing.budgets.services.webhooks import webhooks_deliver
