"""What must hold for every price, split, interval and month."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.intervals import Interval, billing_month, month_of, next_month, previous_month, union
from pricing.documents import DocumentError, parse_document
from pricing.efficiency import EfficiencyPolicy, Form, judge
from pricing.energy import counted_millijoules
from pricing.fields import InputError, exact_number
from pricing.loadtests.own import LoadRun, LoadTest
from pricing.mig import slice_fraction, slice_list_price
from pricing.money import Number, round_amount, round_together, split_amount
from pricing.tariff import Tariff, TariffPeriod
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from pricing.token_price import (
    LatencyBounds,
    LoadPoint,
    LoadPointError,
    MeasuredRun,
    fit_gpu_seconds,
    phase_costs,
    ratio_costs,
    sustainable_point,
)
from pricing.token_pricing import TokenTerms, price_tokens
from tests.golden.registry import SHEET

amounts = st.decimals(-(10**9), 10**9, places=2)
weights: st.SearchStrategy[list[Number]] = st.lists(
    st.integers(0, 10**9) | st.fractions(0, 100) | st.decimals(0, 100, places=3), min_size=1, max_size=30
).filter(lambda parts: any(parts))
instants = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
zones = st.sampled_from(
    [
        "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns",
        "America/Asuncion", "Africa/Cairo", "Asia/Beirut", "America/Havana", "Atlantic/Azores", "Pacific/Apia",
        "Pacific/Kiritimati", "Asia/Kathmandu", "Africa/Casablanca", "America/Scoresbysund", "UTC",
    ]
)  # fmt: skip
months = st.builds(lambda count: f"{2000 + count // 12}-{count % 12 + 1:02d}", st.integers(0, 12 * 60))


@given(amounts, weights)
def test_shares_add_up_and_mirror_with_the_sign(total: Decimal, parts: list[Number]) -> None:
    shares = split_amount(total, parts)
    assert sum(shares) == total
    assert split_amount(-total, parts) == [-share for share in shares]
    assert all(share == 0 for share, part in zip(shares, parts, strict=True) if not part)
    whole = sum(Fraction(part) for part in parts)
    for share, part in zip(shares, parts, strict=True):
        assert abs(Fraction(share) - Fraction(total) * Fraction(part) / whole) < Fraction(1, 100)


@given(st.fractions(-(10**6), 10**6))
def test_rounding_moves_by_at_most_half_a_cent_and_away_from_zero_at_the_half(value: Fraction) -> None:
    rounded = round_amount(value)
    assert abs(Fraction(rounded) - value) <= Fraction(1, 200)
    assert round_amount(-value) == -rounded
    half = Fraction(int(value * 100), 100) + Fraction(1, 200) * (1 if value >= 0 else -1)
    assert abs(Fraction(round_amount(half))) > abs(half)


@given(st.lists(st.fractions(0, 10**6), max_size=12), st.integers(0, 12))
def test_parts_rounded_together_add_up_and_stay_close(parts: list[Fraction], places: int) -> None:
    rounded = round_together(parts, places)
    assert abs(Fraction(sum(rounded)) - sum(parts)) <= Fraction(1, 2 * 10**places)
    assert all(abs(Fraction(one) - part) < Fraction(1, 10**places) for one, part in zip(rounded, parts, strict=True))


@given(instants, instants, st.lists(instants, max_size=8))
def test_cutting_keeps_every_microsecond(a: datetime, b: datetime, cuts: list[datetime]) -> None:
    whole = Interval(min(a, b), max(a, b))
    pieces = whole.cut(cuts)
    assert sum(piece.microseconds for piece in pieces) == whole.microseconds
    assert union(pieces) in ([whole], [])


spans = st.tuples(instants, st.integers(0, 10**12)).map(
    lambda pair: Interval(pair[0], pair[0] + timedelta(microseconds=pair[1]))
)


@given(st.lists(spans, max_size=12), instants)
def test_a_union_covers_the_same_instants_once(intervals: list[Interval], probe: datetime) -> None:
    merged = union(intervals)
    assert any(one.contains(probe) for one in intervals) == any(one.contains(probe) for one in merged)
    assert union(merged) == merged
    assert all(left.end < right.start for left, right in pairwise(merged))
    assert sum(one.microseconds for one in merged) <= sum(one.microseconds for one in intervals)


@given(spans, spans)
def test_an_overlap_is_inside_both_and_the_same_from_both_sides(one: Interval, other: Interval) -> None:
    common = one.overlap(other)
    assert common == other.overlap(one)
    joined = sum(piece.microseconds for piece in union([one, other]))
    assert joined == one.microseconds + other.microseconds - (common.microseconds if common else 0)


@given(months, zones)
def test_months_tile_time(month: str, zone: str) -> None:
    whole, following = billing_month(month, zone), billing_month(next_month(month), zone)
    assert whole.end == following.start
    assert previous_month(next_month(month)) == month
    assert 27 * 24 <= whole.microseconds // 3_600_000_000 <= 31 * 24 + 25
    assert month_of(whole.start, zone) == month_of(whole.end - timedelta(microseconds=1), zone) == month


@given(instants, zones)
def test_an_instant_lies_in_its_month(instant: datetime, zone: str) -> None:
    assert billing_month(month_of(instant, zone), zone).contains(instant)


positive = st.fractions(Fraction(1, 100), 100)
rates = st.integers(1, 10**5)


@given(positive, rates, st.integers(0, 10**5), rates, st.fractions(1, 10), st.fractions(0, 1), st.fractions(0, 1))
def test_prices_of_either_method_recover_the_gpu_hour(
    cost: Fraction, uncached: int, cached: int, output: int, ratio: Fraction, prefill: Fraction, share: Fraction
) -> None:
    served = {"uncached_tps": uncached, "cached_tps": cached, "output_tps": output}
    for costs in (
        ratio_costs(cost, **served, output_ratio=ratio, cached_ratio=share),
        phase_costs(cost, **served, prefill_share=prefill, cached_ratio=share),
    ):
        assert costs.recovered_per_hour(**served) == cost


@given(positive, st.lists(st.tuples(rates, rates, rates), min_size=4, max_size=6))
def test_fitted_prices_recover_the_measured_time(cost: Fraction, rows: list[tuple[int, int, int]]) -> None:
    runs = [
        MeasuredRun(Fraction(fresh), Fraction(0), Fraction(output), Fraction(50 * fresh + 500 * output + noise % 1000))
        for fresh, output, noise in rows
    ]
    try:
        costs = fit_gpu_seconds(runs).costs(cost)
    except LoadPointError:
        return
    assert min(costs.input, costs.output) >= 0
    recovered = sum(run.input_millions * costs.input + run.output_millions * costs.output for run in runs)
    assert recovered == sum(run.gpu_seconds for run in runs) * cost / 3600


points = st.builds(
    LoadPoint,
    offered_rps=st.integers(1, 30).map(Fraction),
    completed_rps=st.just(Fraction(30)),
    input_tps=st.just(Fraction(1)),
    output_tps=st.just(Fraction(1)),
    ttft_p99_ms=st.integers(1, 999).map(Fraction),
    tpot_p99_ms=st.just(Fraction(1)),
    error_rate=st.just(Fraction(0)),
)


@given(st.lists(points, min_size=1, max_size=8, unique_by=lambda point: point.offered_rps), st.randoms())
def test_nothing_below_the_sustainable_point_fails_whatever_the_order(runs: list[LoadPoint], shuffle: Any) -> None:
    bounds = LatencyBounds(Fraction(500), Fraction(80))
    mixed = list(runs)
    shuffle.shuffle(mixed)
    try:
        selected = sustainable_point(runs, bounds)
    except LoadPointError:
        assert bounds.broken(min(runs, key=lambda run: run.offered_rps))
        return
    assert all(not bounds.broken(run) for run in runs if run.offered_rps <= selected.offered_rps)
    assert sustainable_point(mixed, bounds) == selected


rough_points = st.builds(
    LoadPoint,
    offered_rps=st.integers(1, 4).map(Fraction),
    completed_rps=st.just(Fraction(4)),
    input_tps=st.integers(1, 5).map(Fraction),
    output_tps=st.integers(1, 5).map(Fraction),
    ttft_p99_ms=st.integers(400, 600).map(Fraction),
    tpot_p99_ms=st.just(Fraction(1)),
    error_rate=st.just(Fraction(0)),
    duration_s=st.just(Fraction(600)),
)


@pytest.mark.parametrize("method", ["ratio", "least-squares", "output-only"])
@given(runs=st.lists(rough_points, min_size=1, max_size=9), shuffle=st.randoms())
def test_the_order_of_the_runs_never_decides_the_price(method: str, runs: list[LoadPoint], shuffle: Any) -> None:
    """Rates repeat here, with runs that pass and runs that fail at the same one."""
    bounds = LatencyBounds(Fraction(500), Fraction(80))
    terms = TokenTerms(Fraction(10), Fraction(0), bounds, method, Fraction(4), Fraction(1, 10), Fraction(1))
    mixed = list(runs)
    shuffle.shuffle(mixed)
    outcomes: list[Any] = []
    for ordered in (runs, mixed):
        test = LoadTest("H800", 1, "m", "", "", tuple(LoadRun(point, {}) for point in ordered))
        try:
            selected, costs = price_tokens([test], terms)
            outcomes.append((selected.point, costs))
        except LoadPointError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def number(low: int, high: int, places: int = 3) -> st.SearchStrategy[str]:
    return st.decimals(low, high, places=places).map(str)


DEARER = (
    "server_price", "gpu_price", "network_price_per_port", "ports_per_gpu", "gpu_power_kw", "pue", "server_other_power_kw",
    "electricity_price_per_kwh", "rack_rent_per_month", "bandwidth_per_month", "labour_per_month", "software_per_month",
    "maintenance_ratio_per_year", "spare_gpus", "demand_charge_per_kw_month", "fabric_price", "scratch_tb_per_gpu",
    "storage_price_per_tb_month", "reserve_ratio", "cost_of_capital", "markup",
)  # fmt: skip
CHEAPER = (
    "life_years", "gpus_per_rack", "cluster_gpus", "hours_per_month", "availability", "sold_share", "fabric_gpus",
    "residual_ratio", "installed_gpus",
)  # fmt: skip
WHOLE = ("spare_gpus", "gpus_per_rack", "cluster_gpus", "fabric_gpus", "installed_gpus")
COMPLETE = {
    **SHEET, "residual_ratio": "0.10", "cost_of_capital": "0.08", "maintenance_ratio_per_year": "0.04",
    "installed_gpus": "1024", "spare_gpus": "32", "availability": "0.5", "sold_share": "0.5", "fabric_price": "25000000",
    "demand_charge_per_kw_month": "40", "fabric_gpus": "1024", "scratch_tb_per_gpu": "2", "reserve_ratio": "0.05",
    "storage_price_per_tb_month": "300", "markup": "0.2", "hours_per_month": "600", "electricity_price_per_kwh": "0.8",
}  # fmt: skip


@given(st.sampled_from((*DEARER, *CHEAPER)), st.decimals(Decimal("1"), Decimal("1.3"), places=3))
def test_the_cost_is_monotone_in_every_input(field: str, factor: Decimal) -> None:
    value = Decimal(COMPLETE[field]) * factor
    changed = parse_cost_sheet({**COMPLETE, field: str(int(value) if field in WHOLE else value)})
    before, after = cost_of_gpu_hour(parse_cost_sheet(COMPLETE)), cost_of_gpu_hour(changed)
    if field in CHEAPER:
        assert after.cost <= before.cost
    else:
        assert after.cost >= before.cost
        assert after.price >= before.price


@given(
    st.fixed_dictionaries(
        {"server_price": number(0, 10**6), "gpu_price": number(0, 10**6), "life_years": number(1, 9), "pue": number(1, 3)},
        optional={
            "residual_ratio": st.just("0.25"), "cost_of_capital": number(0, 0, 2) | st.just("0.085"),
            "availability": st.just("0.97"), "sold_share": st.just("0.7"), "reserve_ratio": st.just("0.03"),
            "metered_kwh_per_gpu_hour": number(1, 2), "demand_charge_per_kw_month": number(0, 99),
            "maintenance_ratio_per_year": st.just("0.04"),
        },
    )
)  # fmt: skip
def test_components_add_up_to_the_cost_and_as_shown(changed: dict[str, str]) -> None:
    cost = cost_of_gpu_hour(parse_cost_sheet({**SHEET, **changed}))
    shown = cost.as_dict()
    assert sum(part.cost_per_gpu_hour for part in cost.components) == cost.cost
    assert all(part.cost_per_gpu_hour >= 0 for part in cost.components)
    assert sum(Decimal(part["cost_per_gpu_hour"]) for part in shown["components"]) == Decimal(shown["cost_per_gpu_hour"])
    assert len({part.name for part in cost.components}) == len(cost.components)


scraps = st.text(alphabet="ae19.%-+_ \n\0名１😀", max_size=8)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | scraps | st.decimals() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scraps, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from((*SHEET, "tariff", "spare_gpus", "colour")), anything, max_size=6))
def test_a_bad_sheet_never_ends_in_anything_but_its_own_error(changed: dict[str, Any]) -> None:
    messages = ["good"]
    try:
        cost_of_gpu_hour(parse_cost_sheet({**SHEET, **changed})).as_dict()
    except InputError as error:
        messages = error.messages
    assert messages
    assert all(message and "\n" not in message for message in messages)


markup = st.text(alphabet="{}[]:,-\"'&*#|>?! \n\tab1.", max_size=40).map(str.encode)


@given(st.binary(max_size=60) | markup, st.sampled_from([".json", ".yaml", ""]))
def test_any_bytes_are_a_document_or_one_line(raw: bytes, ending: str) -> None:
    message = f"a{ending}"
    try:
        parse_document(raw, message)
    except DocumentError as error:
        message = str(error)
    assert message.startswith(f"a{ending}")
    assert "\n" not in message


@given(st.decimals(-(10**20), 10**20, allow_nan=False, places=9))
def test_a_number_is_read_exactly(value: Decimal) -> None:
    assert exact_number(str(value)) == exact_number(value) == Fraction(value)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=30))
def test_counted_energy_is_never_negative_and_exact_without_resets(readings: list[int]) -> None:
    assert counted_millijoules(readings) >= 0
    ordered = sorted(readings)
    assert counted_millijoules(ordered) == ordered[-1] - ordered[0]


@given(
    st.lists(st.tuples(positive, st.fractions(0, 100)), min_size=1, max_size=24).filter(
        lambda hours: any(kwh for _, kwh in hours)
    )
)
def test_a_tariff_lies_between_its_cheapest_and_dearest_hour(hours: list[tuple[Fraction, Fraction]]) -> None:
    mean = Tariff(tuple(TariffPeriod("hour", price, kwh) for price, kwh in hours)).price_per_kwh
    assert min(price for price, _ in hours) <= mean <= max(price for price, _ in hours)


@given(st.decimals(Decimal("0.01"), 1000, places=4))
def test_slices_that_fill_a_card_cost_no_less_than_the_card(price: Decimal) -> None:
    for profile, copies in (("1g.10gb", 7), ("1g.20gb", 4), ("3g.40gb", 2), ("7g.80gb", 1)):
        listed = slice_list_price(price, profile)
        assert listed * copies >= price
        assert abs(Fraction(listed) - Fraction(price) * slice_fraction(profile)) <= Fraction(1, 10_000)


ratios = st.decimals(0, 1, places=4)


@given(st.none() | ratios, st.none() | ratios, st.none() | ratios, st.decimals(0, 100, places=1))
def test_what_is_missing_or_contradictory_never_changes_a_price(
    mfu: Decimal | None, hfu: Decimal | None, coverage: Decimal | None, minutes: Decimal
) -> None:
    policy = EfficiencyPolicy(
        "p", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.2"), Decimal("0.2"), Decimal("0.5"), Decimal("0.1")
    )
    for form in Form:
        verdict = judge(
            replace(policy, form=form), gpu_seconds=Decimal(7200), minutes=minutes, coverage=coverage, mfu=mfu, hfu=hfu
        )
        assert Decimal("0.9") <= verdict.multiplier <= Decimal("1.2")
        assert (verdict.multiplier == 1) == verdict.reason.startswith("neutral")
        if mfu is None or hfu is None or coverage is None or mfu > hfu or minutes < 30 or coverage < Decimal("0.95"):
            assert verdict.multiplier == 1
