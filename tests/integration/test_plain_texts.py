"""What is on the pages reads as written by a person: no marks of its source, no "1 months"."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import override

from billing.portal.templatetags.portal import amount_of_unit, compact
from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import Page, one_of_each

pytestmark = pytest.mark.django_db(transaction=True)
ONE_OF_MANY = re.compile(
    r"(?<![\d.,:/-])1 (?:open |more |business )?"
    r"(?:months|days|hours|teams|lines|records|jobs|files|rows|invoices|drafts|runs|documents|units|"
    r"holds|scans|charges|entries|nodes|pods|versions|prices|tokens|allocations|journals|budgets|windows|years)\b"
)
NOT_OURS = ("pre", "textarea")
"""Elements that show what somebody sent or wrote."""


class Words(Page):
    """The text of a page but for what others wrote."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside += tag in NOT_OURS

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag in NOT_OURS

    def handle_data(self, data: str) -> None:
        self.text += "" if self.inside else data


def words(client: Client, address: str) -> str:
    page = Words(address=address)
    page.feed(client.get(address).content.decode())
    return re.sub(r"\s+", " ", page.text)


@pytest.mark.parametrize(
    ("value", "unit", "english", "chinese"),
    [
        ("1", "months", "1 month", "1 个月"), ("2", "months", "2 months", "2 个月"),
        ("1", "records", "1 record", "1 条记录"), ("12345", "tokens", "12,345 tokens", "12,345 个 Token"),
        ("1.5", "units", "1.5 devices", "1.5 台设备"), ("5400", "seconds", "1.5 h", "1.5 小时"),
        ("3600", "gpu_seconds", "1.0 GPU-h", "1.0 GPU-h"), ("3", "strange", "3 strange", "3 strange"),
    ],
)  # fmt: skip
def test_what_an_exception_counts_is_said_in_words(value: str, unit: str, english: str, chinese: str) -> None:
    with override("en"):
        assert amount_of_unit(Decimal(value), unit) == english
    with override("zh-hans"):
        assert amount_of_unit(Decimal(value), unit) == chinese


@pytest.mark.parametrize("who", ["finance", "lead", "admin"])
def test_no_page_shows_marks_of_its_source_or_a_plural_of_one(tmp_path: Path, who: str) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    client = Client()
    client.force_login(User.objects.get(username=who))
    found = {}
    for route, address in one_of_each(who, scenario).items():
        text = words(client, address)
        marks = [text[max(0, at.start() - 60) : at.end() + 40] for at in re.finditer("`", text)]
        odd = marks + [text[max(0, at.start() - 30) : at.end() + 30] for at in ONE_OF_MANY.finditer(text)]
        if odd:
            found[route] = odd
    assert found == {}


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (None, "—"), ("0", "0"), ("0.04", "0.0"), ("9.9", "9.9"), ("999", "999"), ("999.6", "1.0k"), ("1000", "1.0k"),
        ("12345", "12k"), ("999499", "999k"), ("999500", "1.0M"), ("1000000", "1.0M"), ("12345678", "12M"),
    ],
)  # fmt: skip
def test_a_figure_of_a_small_cell_is_never_a_thousand_thousands(figure: str | None, expected: str) -> None:
    assert compact(None if figure is None else Decimal(figure)) == expected
