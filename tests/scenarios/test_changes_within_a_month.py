"""A price or an owner changes in the middle of a month, even of an hour: each side of the instant is billed for itself."""

from tests.scenarios.company import Company, price_list

CHANGE = "2026-10-15 22:07:03"
"""423 seconds after 22:00, and 3,177 before 23:00."""


def uses_an_hour(company: Company) -> None:
    company.uses("nlp-train", gpus=1, since="2026-10-15 22:00", until="2026-10-15 23:00")
    company.writes(output=1, on="2026-10-15 22:07:02.999999")
    company.writes(output=2, on=CHANGE)
    company.writes(output=4, on="2026-10-15 22:00")
    company.writes(output=8, on="2026-10-15 22:59:59.999999")


def test_a_price_that_changes_within_an_hour_cuts_devices_and_tokens_exactly(company: Company) -> None:
    company.publishes(price_list("mid", CHANGE, gpu_hour="20.0000", output="16.0000"))
    uses_an_hour(company)
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10") == [
        "0.1175 GPU-Hours of NVIDIA-H800 at 10.0000: 1.18",  # 1.175
        "0.8825 GPU-Hours of NVIDIA-H800 at 20.0000: 17.65",
        "5 1M Tokens of output of llama-3-8b at 8.0000: 40.00",
        "10 1M Tokens of output of llama-3-8b at 16.0000: 160.00",
        "total 218.83",
    ]


def test_a_namespace_and_a_key_that_change_hands_within_an_hour_are_billed_to_both_teams(company: Company) -> None:
    company.gives("nlp-*", "cv", CHANGE)
    company.gives_key("cv", CHANGE)
    uses_an_hour(company)
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10") == [
        "0.1175 GPU-Hours of NVIDIA-H800 at 10.0000: 1.18",
        "5 1M Tokens of output of llama-3-8b at 8.0000: 40.00",
        "total 41.18",
    ]
    assert company.invoice("cv", "2026-10") == [
        "0.8825 GPU-Hours of NVIDIA-H800 at 10.0000: 8.83",  # 8.825
        "10 1M Tokens of output of llama-3-8b at 8.0000: 80.00",
        "total 88.83",
    ]


def test_usage_before_the_first_price_blocks_the_close_until_there_is_one(company: Company) -> None:
    company.uses("nlp-train", gpus=8, since="2025-10-10 08:00", until="2025-10-10 10:00")
    company.gives("nlp-*", "nlp", "2025-01-01")
    assert company.what_blocks("2025-10") == ["unpriced: NVIDIA-H800, 57,600 gpu_seconds"]
    early = price_list("early", "2025-01-01", gpu_hour="9.0000")
    company.publishes(early, price_list("late", "2025-10-10 09:00", gpu_hour="8.0000"))
    company.bills("2025-10")
    assert company.invoice("nlp", "2025-10") == [
        "8 GPU-Hours of NVIDIA-H800 at 9.0000: 72.00", "8 GPU-Hours of NVIDIA-H800 at 8.0000: 64.00", "total 136.00",
    ]  # fmt: skip
