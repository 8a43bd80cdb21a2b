"""A commitment that begins or ends within a month, and slices beside it: what is beyond it, and where it is heading for."""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.factories import SET_UP, apply, ingest_allocations, signed_in
from tests.factories.corrections import bill, people
from tests.factories.usage import hold

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FOUR_DAYS_LATER = datetime(2026, 10, 19, 16, tzinfo=UTC)
SLICE = "nvidia.com/mig-3g.40gb"
HOURS = ("bought_gpu_hours", "used_gpu_hours", "unused_gpu_hours", "beyond_gpu_hours")
PACE = ("burn_rate", "expected_used_gpu_hours", "expected_unused_gpu_hours")


def terms(name: str, since: str, hours: str = "1000", **until: str) -> dict[str, str]:
    return {"name": name, "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": hours,
            "price_per_gpu_hour": "8.0000", "valid_from": since, **until}  # fmt: skip


def five_until_the_sixteenth_then_one() -> None:
    """1,800 hours in the first fifteen local days, 24 on each of the four days after."""
    ingest_allocations(
        hold(1, "2026-09-30T16:00:00Z", "2026-10-15T16:00:00Z", quantity=5),
        hold(2, "2026-10-15T16:00:00Z", "2026-10-19T16:00:00Z", quantity=1),
    )


def shown(*columns: str) -> dict[str, tuple[Decimal, ...]]:
    """Some columns of the file, by commitment."""
    body = signed_in("sam").get("/commitments/?month=2026-10&table=commitments&as=csv").content.decode()
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(body.removeprefix("\ufeff"))))
    return {row["commitment"]: tuple(Decimal(row[name]) for name in columns) for row in rows}


def test_what_was_used_before_it_began_is_not_beyond_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It bought 1,000 x 16 / 31 h; a quarter of its time has passed, in which 96 h were used: 384 by the end."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: FOUR_DAYS_LATER)
    people()
    apply(tmp_path, commitments=[terms("nlp-2026", "2026-10-16")])
    five_until_the_sixteenth_then_one()
    hours = tuple(map(Decimal, ("516.129032", "96", "420.129032", "0")))
    assert shown(*HOURS) == {"nlp-2026": hours}
    assert shown(*PACE) == {"nlp-2026": (Decimal("0.7440"), Decimal(384), Decimal("132.129032"))}


@pytest.mark.parametrize("issued", [False, True])
def test_what_is_beyond_one_of_two_is_not_beyond_the_other(tmp_path: Path, issued: bool) -> None:
    """The first bought 1,000 x 15 / 31 h of the 1,800."""
    people()
    apply(tmp_path, commitments=[terms("first", "2026-10-01"), terms("second", "2026-10-16", "500")])
    five_until_the_sixteenth_then_one()
    if issued:
        bill()
    assert shown(*HOURS) == {
        "first": tuple(map(Decimal, ("483.870968", "483.870968", "0", "1316.129032"))),
        "second": tuple(map(Decimal, ("258.064516", "96", "162.064516", "0"))),
    }


@pytest.mark.parametrize(
    ("since", "hours"), [("2026-10-01", (31, 24, 7, 0)), ("2026-10-11", (21, 21, 0, 3))]
)
def test_what_the_platform_carries_is_beyond_no_commitment(tmp_path: Path, since: str, hours: tuple[int, ...]) -> None:
    """Of 48 h on the 12th 24 were preempted. 31 h a month are bought; from the 11th on 21 days of it."""
    people()
    apply(tmp_path, commitments=[terms("nlp-2026", since, "31", valid_until="2026-11-01")],
          interruption_policies=[{"name": "sla", "valid_from": "2026-10-01", "preempted": "platform"}])  # fmt: skip
    for number, reason in ((1, "preempted"), (2, "completed")):
        ingest_allocations(
            hold(number, "2026-10-12T00:00:00Z", "2026-10-12T12:00:00Z", quantity=2, end_reason=reason)
        )
    assert shown(*HOURS) == {"nlp-2026": hours}


def test_what_is_beyond_two_at_once_is_beyond_both_and_none_says_what_to_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,200 h to the 11th 200 are beyond the first; then 100 h of the second are used up, and 500 and 96 beyond both."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: FOUR_DAYS_LATER)
    people()
    more = terms("more", "2026-10-11", "310", valid_until="2026-10-21")
    apply(tmp_path, commitments=[terms("nlp-2026", "2026-10-01"), more])
    five_until_the_sixteenth_then_one()
    assert shown(*HOURS) == {"nlp-2026": (1000, 1000, 0, 796), "more": (100, 100, 0, 596)}
    body = signed_in("sam").get("/commitments/?month=2026-10&table=commitments&as=csv").content.decode()
    assert [row["burn_rate"] for row in csv.DictReader(io.StringIO(body.removeprefix("\ufeff")))] == ["", ""]


def test_a_slice_with_a_price_of_its_own_is_not_beyond_a_commitment_of_its_card(tmp_path: Path) -> None:
    """Half a card for ten hours, and ten of two hundred hours on a whole one."""
    people()
    listed = SET_UP["price_versions"][0]
    own = {"accelerator": "NVIDIA-H800", "resource": SLICE, "price_per_gpu_hour": "12.0000"}
    apply(tmp_path, price_versions=[{**listed, "gpu": [*listed["gpu"], own]}],
          commitments=[terms("nlp-2026", "2026-10-01", "200")])  # fmt: skip
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T10:00:00Z", quantity=1, resource=SLICE, device_fraction="0.5"),
        hold(2, "2026-10-10T00:00:00Z", "2026-10-10T10:00:00Z", quantity=1),
    )
    assert shown(*HOURS) == {"nlp-2026": (200, 10, 190, 0)}
