"""Menu of the portal: every entry with its page, its label and the right that it requires, grouped by task."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from billing.tenancy.access import Right


class Entry(NamedTuple):
    """Entry of the menu. `page`: the name of its address, which its views give as `nav`.

    `of_month`: the link keeps the month of the page. `for_team`: shown at once to users who see only their own teams;
    the rest is folded away for them.
    """

    page: str
    label: Any
    right: Right | None = None
    of_month: bool = False
    for_team: bool = False


class Section(NamedTuple):
    """Entries under a title; a folded section opens by a click, and on the pages of its entries."""

    title: Any
    entries: tuple[Entry, ...]
    folded: bool = False


MENU: Final = (
    Section(_("Costs"), (
        Entry("explorer", _("Cost explorer"), for_team=True),
        Entry("inbox", _("Inbox"), for_team=True),
        Entry("overview", _("Overview"), of_month=True, for_team=True),
        Entry("board", _("Spending")),
        Entry("anomalies", _("Anomalies"), for_team=True),
    )),
    Section(_("Plan"), (
        Entry("budgets", _("Budgets"), for_team=True),
        Entry("commitments", _("Commitments")),
        Entry("planner", _("Training planner")),
    )),
    Section(_("Documents"), (
        Entry("invoices", _("Invoices"), for_team=True),
        Entry("corrections", _("Corrections")),
        Entry("disputes", _("Disputes")),
        Entry("search", _("Search")),
    )),
    Section(_("Prices"), (
        Entry("prices", _("Prices")),
        Entry("policies", _("Policies"), Right.READ),
        Entry("workbench", _("Price workbench"), Right.READ_COSTS),
        Entry("recovery", _("Recovery"), Right.READ_COSTS, of_month=True),
    )),
    Section(pgettext_lazy("month", "Close"), (
        Entry("close", _("Can we close?"), Right.READ, of_month=True),
        Entry("audit", _("Audit"), Right.READ_AUDIT),
        Entry("holdings", _("Who holds what"), Right.READ_AUDIT),
    )),
    Section(_("Metering and access"), (
        Entry("start", _("First steps"), Right.OPERATE),
        Entry("teams", _("Teams"), Right.READ),
        Entry("ownership", _("Ownership")),
        Entry("sources", _("Agents and sources"), Right.READ),
        Entry("install_agent", pgettext_lazy("menu", "Connect"), Right.MANAGE_PEOPLE),
        Entry("quarantine", _("Quarantine"), Right.READ),
        Entry("people", _("People and access"), Right.MANAGE_PEOPLE),
        Entry("own_tokens", _("My tokens")),
        Entry("installation", _("Version and backups"), Right.MANAGE_PEOPLE),
    )),
)  # fmt: skip


def menu_of(may: Mapping[str, bool]) -> list[Section]:
    """Return the sections and entries for a user with the rights that are True in `may`.

    A reader of every team has all sections; a reader of their own teams has six entries, and the others under "More".
    """
    permitted = [section._replace(entries=_permitted(section, may)) for section in MENU]
    if may.get(Right.READ):
        return permitted
    entries = [entry for section in permitted for entry in section.entries]
    return [
        Section("", tuple(entry for entry in entries if entry.for_team)),
        Section(_("More"), tuple(entry for entry in entries if not entry.for_team), folded=True),
    ]


def _permitted(section: Section, may: Mapping[str, bool]) -> tuple[Entry, ...]:
    return tuple(entry for entry in section.entries if entry.right is None or may.get(entry.right))
