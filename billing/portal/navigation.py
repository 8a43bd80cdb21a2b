"""The menu: every entry with its page, its label and the right that its reader needs."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext_lazy as _

from billing.tenancy.access import Right


class Entry(NamedTuple):
    """`page`: the name of its address, which its views give as `nav`. `of_month`: it opens the month of the page."""

    page: str
    label: Any
    right: Right | None = None
    of_month: bool = False


class Section(NamedTuple):
    """Entries under a title, all of them only for a reader with `right`."""

    title: Any
    right: Right | None
    entries: tuple[Entry, ...]


MENU: Final = (
    Section("", None, (
        Entry("explorer", _("Cost explorer")),
        Entry("overview", _("Overview"), of_month=True),
        Entry("board", _("Spending")),
        Entry("budgets", _("Budgets")),
        Entry("commitments", _("Commitments")),
        Entry("anomalies", _("Anomalies")),
        Entry("invoices", _("Invoices")),
        Entry("search", _("Search")),
        Entry("corrections", _("Corrections")),
        Entry("disputes", _("Disputes")),
        Entry("prices", _("Prices")),
        Entry("planner", _("Training planner")),
        Entry("ownership", _("Ownership")),
    )),
    Section(_("Finance"), Right.READ, (
        Entry("recovery", _("Recovery"), Right.READ_COSTS, of_month=True),
        Entry("workbench", _("Price workbench"), Right.READ_COSTS),
        Entry("close", _("Can we close?"), of_month=True),
        Entry("audit", _("Audit"), Right.READ_AUDIT),
    )),
    Section(_("Metering"), Right.READ, (
        Entry("start", _("First steps"), Right.OPERATE),
        Entry("sources", _("Agents and sources")),
        Entry("quarantine", _("Quarantine")),
        Entry("people", _("People and access"), Right.MANAGE_PEOPLE),
    )),
)  # fmt: skip


def menu_of(may: Mapping[str, bool]) -> list[Section]:
    """The sections and entries for somebody who may do what is True in `may`, by right."""
    return [
        section._replace(entries=tuple(entry for entry in section.entries if entry.right is None or may.get(entry.right)))
        for section in MENU
        if section.right is None or may.get(section.right)
    ]
