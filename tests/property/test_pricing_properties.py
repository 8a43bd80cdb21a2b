"""What must hold for every price, split and interval."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from metering.intervals import Interval, billing_month, month_of, union
from pricing.money import round_amount, split_amount
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from pricing.token_price import ratio_costs
from tests.golden.test_pricing_vectors import SHEET

amounts = st.decimals(-(10**9), 10**9, places=2)
weights = st.lists(st.integers(0, 10**9), min_size=1, max_size=30).filter(sum)
instants = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
zones = st.sampled_from(["Asia/Shanghai", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])


@given(amounts, weights)
def test_shares_add_up_and_mirror_with_the_sign(total: Decimal, parts: list[int]) -> None:
    shares = split_amount(total, parts)
    assert sum(shares) == total
    assert split_amount(-total, parts) == [-share for share in shares]
    assert all(share == 0 for share, part in zip(shares, parts, strict=True) if not part)


@given(st.fractions(-(10**6), 10**6))
def test_rounding_moves_by_at_most_half_a_cent_and_away_from_zero_at_the_half(value: Fraction) -> None:
    rounded = round_amount(value)
    assert abs(Fraction(rounded) - value) <= Fraction(1, 200)
    assert round_amount(-value) == -rounded


@given(instants, instants, st.lists(instants, max_size=8))
def test_cutting_keeps_every_microsecond(a: datetime, b: datetime, cuts: list[datetime]) -> None:
    whole = Interval(min(a, b), max(a, b))
    pieces = whole.cut(cuts)
    assert sum(piece.microseconds for piece in pieces) == whole.microseconds
    assert union(pieces) in ([whole], [])


@given(st.integers(0, 119), zones)
def test_months_follow_each_other_without_gap_or_overlap(number: int, zone: str) -> None:
    label = f"{2020 + number // 12}-{number % 12 + 1:02d}"
    month = billing_month(label, zone)
    following = month_of(month.end, zone)
    assert billing_month(following, zone).start == month.end
    assert month_of(month.start, zone) == month_of(month.end - timedelta(microseconds=1), zone) == label


@given(
    st.fractions(Fraction(1, 100), 100), st.integers(1, 10**5), st.integers(0, 10**5), st.integers(1, 10**4),
    st.fractions(1, 10), st.fractions(0, 1),
)  # fmt: skip
def test_ratio_prices_recover_the_gpu_hour(
    cost: Fraction, uncached: int, cached: int, output: int, ratio: Fraction, share: Fraction
) -> None:
    costs = ratio_costs(
        cost, uncached_tps=uncached, cached_tps=cached, output_tps=output, output_ratio=ratio, cached_ratio=share
    )
    assert (costs.input * uncached + costs.cache_read * cached + costs.output * output) * 3600 / 10**6 == cost


@given(
    st.sampled_from(
        [
            "server_price", "gpu_price", "network_price_per_port", "ports_per_gpu", "gpu_power_kw", "pue",
            "server_other_power_kw", "electricity_price_per_kwh", "rack_rent_per_month", "bandwidth_per_month",
            "labour_per_month", "software_per_month",
        ]
    ),
    st.decimals(1, 2, places=4),
)  # fmt: skip
def test_a_dearer_input_never_makes_a_cheaper_gpu_hour(field: str, factor: Decimal) -> None:
    dearer = {**SHEET, field: str(Decimal(SHEET[field]) * factor)}
    cost = cost_of_gpu_hour(parse_cost_sheet(dearer))
    assert cost.cost >= cost_of_gpu_hour(parse_cost_sheet(SHEET)).cost
    assert sum(part.cost_per_gpu_hour for part in cost.components) == cost.cost
