"""Cost sheets: every bad field gets its own message, and what is shown adds up."""

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.tco import CostSheetError, cost_of_gpu_hour, parse_cost_sheet
from tests.golden.test_pricing_vectors import SHEET


def problems(**changed: str | None) -> list[str]:
    fields = {key: value for key, value in {**SHEET, **changed}.items() if value is not None}
    with pytest.raises(CostSheetError) as caught:
        parse_cost_sheet(fields)
    return caught.value.messages


def test_components_add_up_to_the_cost() -> None:
    cost = cost_of_gpu_hour(parse_cost_sheet(SHEET))
    assert sum(part.cost_per_gpu_hour for part in cost.components) == cost.cost == Fraction(135325841, 14016000)
    assert cost.price == Decimal("11.5861")
    assert cost.facility_kw == Decimal("1.657500")
    assert cost.as_dict()["components"][0] == {"name": "hardware", "cost_per_gpu_hour": "6.164383561644"}
    assert cost.as_dict()["cost_per_gpu_hour"] == "9.655097103311"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("gpu_power_kw", "700", "700 W is 0.7"),
        ("server_other_power_kw", "4600", "4600 W is 4.6"),
        ("markup", "20", "10 % is 0.10"),
        ("pue", "0.9", "from 1 to 5"),
        ("life_years", "0", "above 0"),
        ("gpus_per_server", "2.5", "whole number"),
        ("gpu_price", "-1", "from 0"),
        ("gpu_price", "abc", "from 0"),
        ("gpu_price", "NaN", "from 0"),
        ("labour_per_month", None, "is missing"),
        ("accelerator", None, "is missing"),
        ("colour", "red", "is no field"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_range(field: str, value: str | None, says: str) -> None:
    (message,) = problems(**{field: value})
    assert message.startswith(f"{field}:")
    assert says in message
    assert value is None or field == "colour" or repr(value) in message


def test_three_bad_fields_get_three_messages() -> None:
    assert [message.split(":")[0] for message in problems(pue="0.5", gpu_price=None, gpu_power_kw="700")] == [
        "gpu_price", "gpu_power_kw", "pue",
    ]  # fmt: skip
