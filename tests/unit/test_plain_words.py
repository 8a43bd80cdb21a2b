"""Amounts in words and in small cells: no "1 months", no thousand thousands."""

from decimal import Decimal

import pytest
from django.utils.translation import override

from billing.portal.templatetags.portal import amount_of_unit, compact
from billing.tenancy.app_command import number_of


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


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (None, "—"), ("0", "0"), ("0.04", "0.0"), ("9.9", "9.9"), ("999", "999"), ("999.6", "1.0k"), ("1000", "1.0k"),
        ("12345", "12k"), ("999499", "999k"), ("999500", "1.0M"), ("1000000", "1.0M"), ("12345678", "12M"),
    ],
)  # fmt: skip
def test_a_figure_of_a_small_cell_is_never_a_thousand_thousands(figure: str | None, expected: str) -> None:
    assert compact(None if figure is None else Decimal(figure)) == expected


def test_one_thing_is_no_plural() -> None:
    assert [number_of(number, "invoice") for number in (0, 1, 1200)] == ["0 invoices", "1 invoice", "1,200 invoices"]
