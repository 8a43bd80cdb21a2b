"""Usage is reported after its month was closed: it is billed once, as a correction, at owner and price of its own time."""

from tests.scenarios.company import Company, price_list


def test_late_usage_is_billed_with_the_next_month_at_the_price_of_its_own_time(company: Company) -> None:
    company.publishes(price_list("november", "2026-11-01", gpu_hour="20.0000", output="16.0000"))
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 10:37:13")
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10") == ["20.962222 GPU-Hours of NVIDIA-H800 at 10.0000: 209.62", "total 209.62"]

    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 10:37:13")
    company.uses("nlp-train", gpus=8, since="2026-11-05 08:00", until="2026-11-05 09:00")
    company.writes(output=1, on="2026-10-15")
    company.bills("2026-11")
    assert company.invoice("nlp", "2026-11") == [
        "8 GPU-Hours of NVIDIA-H800 at 20.0000: 160.00",
        "20.962222 GPU-Hours of NVIDIA-H800 at 10.0000: 209.62 (used in 2026-10)",
        "1 1M Tokens of output of llama-3-8b at 8.0000: 8.00 (used in 2026-10)",
        "total 377.62",
    ]
    assert company.invoice("nlp", "2026-10")[-1] == "total 209.62"
    assert company.proven("2026-10", "2026-11")


def test_late_usage_is_billed_exactly_once_over_several_closes(company: Company) -> None:
    company.closes("2026-10")
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.closes("2026-11")
    company.uses("nlp-train", gpus=2, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.closes("2026-12")
    assert company.invoice("nlp", "2026-11") == [
        "8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00 (used in 2026-10)", "total 80.00",
    ]  # fmt: skip
    assert company.invoice("nlp", "2026-12") == [
        "2 GPU-Hours of NVIDIA-H800 at 10.0000: 20.00 (used in 2026-10)", "total 20.00",
    ]  # fmt: skip
    assert company.documents("2026-10") == 0
    assert company.proven("2026-11", "2026-12")


def test_months_closed_out_of_order_bill_everything_once(company: Company) -> None:
    company.uses("nlp-train", gpus=8, since="2026-11-05 08:00", until="2026-11-05 09:00")
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 10:00")
    company.closes("2026-11")
    company.uses("nlp-train", gpus=1, since="2026-11-05 08:00", until="2026-11-05 09:00")
    company.uses("nlp-train", gpus=1, since="2026-10-10 08:00", until="2026-10-10 10:00")
    company.closes("2026-10")
    assert company.invoice("nlp", "2026-11") == ["8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00", "total 80.00"]
    assert company.invoice("nlp", "2026-10") == [
        "18 GPU-Hours of NVIDIA-H800 at 10.0000: 180.00",
        "1 GPU-Hours of NVIDIA-H800 at 10.0000: 10.00 (used in 2026-11)",
        "total 190.00",
    ]
    assert company.proven("2026-10", "2026-11")


def test_a_pod_that_ran_on_after_the_gap_was_waived_is_corrected_in_its_own_time(company: Company) -> None:
    started = "2026-10-31 22:00"
    company.report(1, "nlp-train", gpus=8, since=started, until=None, seen="2026-10-31 23:00")
    company.waives("2026-10", "metering_gap", "hq-1/nlp-train")
    company.closes("2026-10")
    assert company.invoice("nlp", "2026-10") == ["8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00", "total 80.00"]

    assert company.report(1, "nlp-train", gpus=8, since=started, until="2026-11-01 01:00").accepted == 1
    company.closes("2026-11")
    assert company.invoice("nlp", "2026-11") == [
        "8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00",
        "8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00 (used in 2026-10)",
        "total 160.00",
    ]
    assert company.proven("2026-10", "2026-11")


def test_a_pod_cannot_have_ended_within_time_that_is_billed(company: Company) -> None:
    company.report(1, "nlp-train", gpus=8, since="2026-10-10 08:00", until=None, seen="2026-11-01")
    company.closes("2026-10")
    reported = company.report(1, "nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 10:37:13")
    assert (reported.accepted, reported.conflicts) == (0, 1)
    assert company.proven("2026-10")


def test_a_pod_may_have_ended_before_it_was_seen_last_in_a_month_that_is_open(company: Company) -> None:
    """It was seen until 2 November and is then reported to have ended on 1 November: nothing of that is billed yet."""
    started = "2026-10-31 22:00"
    company.report(1, "nlp-train", gpus=8, since=started, until=None, seen="2026-11-02 08:00")
    company.closes("2026-10")
    assert company.invoice("nlp", "2026-10")[-1] == "total 160.00"  # 8 x 2 h x 10
    reported = company.report(1, "nlp-train", gpus=8, since=started, until="2026-11-01 01:00")
    assert (reported.accepted, reported.conflicts) == (1, 0)
    company.closes("2026-11")
    assert company.invoice("nlp", "2026-11") == ["8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00", "total 80.00"]
    assert company.proven("2026-10", "2026-11")


def test_late_usage_without_owner_blocks_the_next_close_until_it_has_one(company: Company) -> None:
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.closes("2026-10")
    company.uses("lost", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00")
    assert company.what_blocks("2026-11") == ["unowned_namespace: hq-1/lost, 28,800 gpu_seconds"]
    company.gives("lost", "cv", "2026-10-01")
    company.closes("2026-11")
    assert company.invoice("cv", "2026-11") == [
        "8 GPU-Hours of NVIDIA-H800 at 10.0000: 80.00 (used in 2026-10)", "total 80.00",
    ]  # fmt: skip
    assert company.proven("2026-10")
