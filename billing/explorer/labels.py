"""Labels of dimensions, metrics, ranges and columns on pages and reports of the explorer, and names of groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from django.utils.dateformat import format as date_format
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from billing.explorer.building import LATE, NOTE
from billing.explorer.query import Query, Span, Step
from billing.explorer.selectors import Explored
from billing.rating.labels import LINE_KIND
from metering.intervals import fiscal_quarter_of

DIMENSION: Final = {
    "team": _("Team"), "namespace": _("Namespace"), "job": _("Job"), "consumer": _("Consumer"), "model": _("Model"),
    "accelerator": _("Accelerator"), "cluster": _("Cluster"), "site": _("Site"), "pool": _("Pool"), "queue": _("Queue"),
    "tier": _("Priority class"), "kind": _("Kind of charge"),
}  # fmt: skip
NAMELESS_WORDS: Final = {
    "team": _("Without a team"), "namespace": _("No namespace"), "job": _("No single job"), "consumer": _("No consumer"),
    "model": _("No model"), "accelerator": _("No accelerator"), "cluster": _("No cluster"), "site": _("No site"),
    "pool": _("No pool"), "queue": _("No queue"), "tier": _("No priority class"),
}  # fmt: skip
DIMENSIONS_MANY: Final = {
    "team": _("Teams"), "namespace": _("Namespaces"), "job": _("Jobs"), "consumer": _("Consumers"), "model": _("Models"),
    "accelerator": _("Accelerators"), "cluster": _("Clusters"), "site": _("Sites"), "pool": _("Pools"), "queue": _("Queues"),
    "tier": _("Priority classes"), "kind": _("Kinds of charge"),
}  # fmt: skip
METRIC: Final = {
    "cost": _("Cost"), "gpu_hours": _("GPU-hours"), "slice_hours": _("Slice-hours"), "tokens": _("Tokens"),
    "requests": _("Requests"), "energy": _("Energy"), "co2": _("CO₂ emissions"),
}  # fmt: skip
UNIT: Final = {"gpu_hours": "GPU-h", "slice_hours": _("slice-h"), "tokens": _("tokens"), "requests": _("requests"),
               "energy": "kWh", "co2": "kg CO₂"}  # fmt: skip
STEP: Final = {"hour": _("Hour"), "day": _("Day"), "week": _("Week"), "month": _("Month")}
BY_STEP: Final = {"hour": _("by hour"), "day": _("by day"), "week": _("by week"), "month": _("by month")}
PRESET: Final = {
    "this-month": _("This month"), "last-month": _("Last month"), "last-7-days": _("Last 7 days"),
    "last-30-days": _("Last 30 days"), "last-90-days": _("Last 90 days"), "this-quarter": _("This fiscal quarter"),
    "last-quarter": _("Last fiscal quarter"), "this-year": _("This fiscal year"), "last-year": _("Last fiscal year"),
    "last-12-months": _("Last 12 months"),
}  # fmt: skip
COLUMN: Final = {
    "share": _("Share"), "before": _("Before"), "change": pgettext_lazy("amount", "Change"), "gpu_hours": _("GPU-hours"),
    "per_gpu_hour": _("Cost per GPU-hour"), "requests": _("Requests"), "per_1000_requests": _("Cost per 1,000 requests"),
    "tokens": _("Tokens"), "per_1m_tokens": _("Cost per 1M tokens"), "jobs": _("Jobs"), "per_job": _("Cost per job"),
    "co2": _("kg CO₂"),
}  # fmt: skip
UNKNOWN: Final = {
    "without_co2": _("%(number)s kWh have no CO₂ factor and are in no figure of CO₂ here."),
    "without_energy": _(
        "%(number)s GPU-hours have a price without a cost sheet: their energy is not known and in no figure here."
    ),
    "slices_without_energy": _(
        "%(number)s slice-hours have a price without a cost sheet: their energy is not known and in no figure here."
    ),
}  # fmt: skip
"""Sentences on usage missing from figures of energy and CO2, by the names of `billing.explorer.sums.UNKNOWN`."""
KIND: Final = {**LINE_KIND, LATE: _("Late usage"), NOTE: _("Credit notes and rebills")}


@dataclass(frozen=True, slots=True)
class Name:
    """Display name of a group, and below it a text that distinguishes it from others."""

    text: str
    under: str = ""


def name_of(dimension: str, value: str, called: Mapping[str, str]) -> Name:
    """Return the display name of a value of a dimension."""
    if not value:
        return Name(str(NAMELESS_WORDS.get(dimension, "")))
    if dimension == "kind":
        return Name(str(KIND.get(value, value)))
    if dimension == "job":
        kind, _slash, name = value.partition("/")
        return Name(name, kind) if name else Name(value)
    if dimension == "team":
        text = called.get(value) or value
        return Name(text, value if text != value else "")
    return Name(value)


def fiscal_text(query: Query, year_begins: int) -> str:
    """Return the fiscal year or quarter of a range; "" for other ranges."""
    of_quarter = query.preset.endswith("quarter")
    if not of_quarter and not query.preset.endswith("-year"):
        return ""
    fiscal = fiscal_quarter_of(f"{query.first:%Y-%m}", year_begins)
    # Translators: a fiscal year, by the year in which it ends
    year = gettext("FY%(year)s") % {"year": fiscal.year}
    return f"{year} Q{fiscal.number}" if of_quarter else year


def day_text(day: date, today: date) -> str:
    """Format a day, with the year where it is not the current one."""
    # Translators: a date without its year, in the format characters of Django
    return date_format(day, gettext("j M") if day.year == today.year else gettext("j M Y"))


def step_text(step: Step, today: date, *, of_one_day: bool = False) -> str:
    """Format the name of a bar as short as its step allows; an hour without the day where all are of one day."""
    if step.start is not None:
        return f"{step.start:%H:%M}" if of_one_day else f"{day_text(step.span.first, today)} {step.start:%H:%M}"
    return step.name if len(step.name) == len("2026-10") else day_text(step.span.first, today)


def span_text(span: Span, today: date) -> str:
    if span.month:
        # Translators: a month with its year, in the format characters of Django
        return date_format(span.first, gettext("F Y"))
    return day_text(span.first, today) if span.days == 1 else f"{day_text(span.first, today)} – {day_text(span.last, today)}"


def apart_texts(found: Explored, amount: str) -> list[str]:
    """Return a sentence on the amount left out because it is showback or because it is charged; [] if there is none."""
    if not found.apart:
        return []
    words = (
        _("Late usage of earlier months, credit notes and rebills are charged, and in no figure of what is only shown:"
          " %(amount)s")
        if found.shadow else _("Only shown, not charged, and in no figure here: %(amount)s")
    )  # fmt: skip
    return [str(words) % {"amount": amount}]


def begun_text(found: Explored) -> str:
    """Return the reason for a missing comparison, where earlier days have no figures; else ""."""
    if found.begun is None:
        return ""
    return gettext("Not compared: there are no figures before %(day)s.") % {"day": day_text(found.begun, found.today)}


def unknown_texts(unknown: Mapping[str, Decimal], text: Callable[[Decimal], str]) -> list[str]:
    """Return a sentence per kind of usage missing from figures of energy and CO2; `text` formats the numbers."""
    return [str(UNKNOWN[name]) % {"number": text(number)} for name, number in unknown.items()]


def title_of(query: Query, names: Sequence[str], called: Mapping[str, str]) -> str:
    """Return the names of a group in one text; "" where there is no grouping."""
    return " · ".join(name_of(name, value, called).text for name, value in zip(query.by, names, strict=True))
