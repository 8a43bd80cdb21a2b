"""Display names of periods, alerts, forecasts and actions of budgets."""

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from billing.budgets.models import Alert, Budget, CostAnomaly

BUDGET_PERIOD: Final = {
    Budget.Period.MONTH: _("per month"),
    Budget.Period.QUARTER: _("per quarter"),
    Budget.Period.PLAN: _("plan with monthly amounts"),
}
ALERT_BASIS: Final = {
    "actual": _("Spending"),
    "forecast": _("Forecast"),
    "commitment": _("Spending with running jobs"),
}
ALERT_KIND: Final = {
    Alert.Kind.THRESHOLD: _("Threshold reached"),
    Alert.Kind.BURN: _("Spends too fast"),
    Alert.Kind.ANOMALY: _("Unusual day"),
    Alert.Kind.SILENCE: _("Metering is silent"),
}
ALERT_LEVEL: Final = {
    Alert.Level.INFO: _("Information"),
    Alert.Level.WARNING: _("Warning"),
    Alert.Level.URGENT: _("Urgent"),
}
FEEDBACK: Final = {
    CostAnomaly.Feedback.TRUE: _("Not expected"),
    CostAnomaly.Feedback.FALSE: _("False alarm"),
    CostAnomaly.Feedback.PLANNED: pgettext_lazy("anomaly", "Expected"),
}
FORECAST_METHOD: Final = {
    "line": _("Mean rate of the period"),
    "weekday": _("Median of each weekday"),
    "recent": _("Mean of the last 14 days"),
    "pace": _("Mean of the last 3 days"),
    "trend": _("Trend of the last 4 weeks"),
}
ACTION: Final = {
    "notify": _("notify"),
    "require_approver": _("new jobs need an approver"),
    "lower_priority": _("lower priority"),
    "rate_limit": _("limit tokens a minute"),
    "cap": _("refuse new requests"),
}
