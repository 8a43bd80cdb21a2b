"""All writes of budgets, their standings, alerts, deliveries and findings."""

from billing.budgets.services.alerts import alert_fire, budgets_evaluate
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

__all__ = [
    "BudgetError", "BudgetWish", "ChannelWish", "alert_fire", "alerts_deliver", "budget_change", "budget_change_approve",
    "budget_change_end", "budget_new", "budget_put", "budgets_evaluate", "cap_override_approve", "cap_override_ask",
    "cap_override_end", "channel_put", "channel_test", "counters_refresh", "days_store", "feedback_put",
    "findings_update", "forecast_is_missing", "forecasts_update", "mute_end", "mute_put", "recipients_put",
    "standings_refresh", "thresholds_put",
]  # fmt: skip
