"""Price and meter agree on how many slices a card has."""

from decimal import Decimal
from fractions import Fraction

import pytest

from metering.accelerators import mig_share
from pricing.mig import MigProfileError, slice_fraction, slice_list_price


@pytest.mark.parametrize(
    ("profile", "memory_gb", "product", "fraction"),
    [
        ("1g.6gb", 24, "", Fraction(1, 4)), ("2g.12gb", 24, "", Fraction(1, 2)), ("4g.24gb", 24, "", Fraction(1)),
        ("2g.12gb+me", 24, "", Fraction(1, 2)), ("2g.12gb", 24, "NVIDIA-A30", Fraction(1, 2)),
        ("1g.24gb", 96, "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", Fraction(1, 4)),
        ("1g.24gb", 48, "NVIDIA-RTX-PRO-5000-Blackwell", Fraction(1, 2)), ("2g.48gb", 48, "RTX PRO 5000", Fraction(1)),
        ("1g.16gb", 32, "NVIDIA-RTX-PRO-4500-Blackwell", Fraction(1, 2)),
        ("1g.24gb", 96, "NVIDIA-H100-96GB-HBM3", Fraction(1, 4)),  # two of eight slices of memory
        ("1g.12gb", 96, "NVIDIA-H100-96GB-HBM3", Fraction(1, 7)),
        ("1g.5gb", 40, "NVIDIA-A100-SXM4-40GB", Fraction(1, 7)), ("7g.80gb", 80, "", Fraction(1)),
    ],
)  # fmt: skip
def test_a_slice_is_its_larger_share(profile: str, memory_gb: int, product: str, fraction: Fraction) -> None:
    assert slice_fraction(profile, memory_gb, product) == fraction


@pytest.mark.parametrize(("profile", "memory_gb"), [("1g.6gb", 24), ("2g.12gb", 24), ("4g.24gb", 24)])
def test_on_an_a30_the_price_is_of_the_share_that_is_metered(profile: str, memory_gb: int) -> None:
    assert slice_fraction(profile, memory_gb) == mig_share(f"nvidia.com/mig-{profile}", "NVIDIA-A30")


def test_four_slices_of_an_a30_cost_the_card() -> None:
    assert slice_list_price(Decimal("2.0001"), "1g.6gb", 24) == Decimal("0.5001")
    assert 4 * slice_list_price(Decimal("2.0001"), "1g.6gb", 24) >= Decimal("2.0001")


@pytest.mark.parametrize(("profile", "memory_gb", "product"), [("7g.24gb", 24, "NVIDIA-A30"), ("1g.6gb", 80, ""),
                                                               ("4g.24gb", 12, "NVIDIA-A30"), ("1g.24gb", 48, ""),
                                                               ("1g.10gb", 80, "NVIDIA-Z9")])  # fmt: skip
def test_a_profile_that_the_card_does_not_have_is_refused(profile: str, memory_gb: int, product: str) -> None:
    with pytest.raises(MigProfileError, match="does not fit"):
        slice_fraction(profile, memory_gb, product)
