"""The menu: by task for who sees every team, six entries at hand for who sees their own."""

import pytest

from billing.portal.navigation import MENU, menu_of
from billing.tenancy.access import RIGHTS, Role

MANAGED = ("install_agent", "people", "installation")


def pages(may: dict[str, bool]) -> dict[bool, list[str]]:
    """The pages of the menu, by whether they are folded away."""
    found: dict[bool, list[str]] = {False: [], True: []}
    for section in menu_of(may):
        found[section.folded] += [entry.page for entry in section.entries]
    return found


def test_a_lead_has_six_entries_at_hand_and_the_other_pages_of_a_team_under_more() -> None:
    assert pages({}) == {
        False: ["explorer", "inbox", "overview", "anomalies", "budgets", "invoices"],
        True: ["board", "commitments", "planner", "corrections", "disputes", "search", "prices", "ownership", "own_tokens"],
    }


@pytest.mark.parametrize(
    ("role", "left_out"),
    [
        (Role.FINANCE, {"start", *MANAGED}),
        (Role.APPROVER, {"start", *MANAGED}),
        (Role.AUDITOR, {"start", *MANAGED}),
        (Role.ADMIN, {"audit", "holdings"}),
    ],
)
def test_who_sees_every_team_has_every_page_but_those_of_rights_not_held(role: str, left_out: set[str]) -> None:
    shown = pages({right.value: True for right in RIGHTS[role]})

    every = [entry.page for section in MENU for entry in section.entries]
    assert shown == {False: [page for page in every if page not in left_out], True: []}
    assert len(every) == 28


def test_no_section_of_the_menu_is_a_title_without_entries() -> None:
    for rights in RIGHTS.values():
        assert all(section.entries for section in menu_of({right.value: True for right in rights}))
