"""What a draft would have done to a month: the same usage under both lists, to the last fen, and nothing is written."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.price_preview import draft_effect, last_month
from billing.closing.services.closing import period_close
from billing.rates.models import PriceDraft
from billing.rates.services import price_draft_create
from billing.rating.models import Charge
from billing.rating.price_effect import PriceEffect
from tests import factories
from tests.factories import AFTER, SET_UP, allocation_record, apply, ingest_allocations, person, signed_in, token_record

pytestmark = pytest.mark.django_db

DECEMBER = datetime(2026, 11, 30, 16, tzinfo=UTC)
DEARER: dict[str, Any] = {
    "gpu": [
        {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.5000"},
        {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "1.0000"},
    ],
    "tokens": [
        {"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "cache_creation": "2", "output": "10.0000"}
    ],
}


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """nlp: 20.962222... H800 GPU-hours and 800,000 + 200,000 + 100,000 tokens; cv: 4 slices for 2.620277... hours."""
    apply(for_all_tests)
    ingest_allocations(
        allocation_record(1),
        allocation_record(2, namespace="cv", quantity=4, resource="nvidia.com/mig-1g.10gb", device_fraction="0.142857"),
        allocation_record(3, namespace="serving"),
        from_file=True,
    )
    factories.ingest_tokens(
        token_record(1, input_tokens=1_000_000, cache_read_input_tokens=200_000, output_tokens=100_000,
                     reasoning_output_tokens=0)
    )  # fmt: skip


def draft(**content: Any) -> PriceDraft:
    return price_draft_create(
        name="2026-12", valid_from=DECEMBER, content={**DEARER, **content}, actor="ana", now=AFTER
    )


def effect(**content: Any) -> PriceEffect:
    return draft_effect(draft=draft(**content), month="2026-10")


def rows(found: PriceEffect) -> list[tuple[Any, ...]]:
    return [
        (row.key.team, row.key.sku, row.key.token_class, row.before, row.after, row.difference, row.percent)
        for row in found.rows
    ]


D = Decimal


def test_every_team_and_sku_before_and_after(october: None) -> None:
    assert rows(effect()) == [
        # 4 slices x 9433 s = 10.481111... slice-hours, x 1.7143 = 17.97 and x 1
        ("cv", "nvidia.com/mig-1g.10gb", "", D("17.97"), D("10.48"), D("-7.49"), D("-41.68")),
        # 8 x 9433 s = 20.962222... GPU-hours, x 10 and x 12.5
        ("nlp", "NVIDIA-H800", "", D("209.62"), D("262.03"), D("52.41"), D("25.00")),
        ("nlp", "llama-3-8b", "cache_read", D("0.04"), D("0.04"), D("0.00"), D("0.00")),
        ("nlp", "llama-3-8b", "input", D("1.60"), D("1.60"), D("0.00"), D("0.00")),
        ("nlp", "llama-3-8b", "output", D("0.80"), D("1.00"), D("0.20"), D("25.00")),
    ]


def test_sums_are_the_sums_of_the_rows(october: None) -> None:
    found = effect()
    assert [(row.key.team, row.before, row.after) for row in found.by_team] == [
        ("nlp", D("212.06"), D("264.67")), ("cv", D("17.97"), D("10.48"))
    ]  # fmt: skip
    assert (found.total.before, found.total.after, found.total.percent) == (D("230.03"), D("275.15"), D("19.61"))
    assert sum(row.after for row in found.by_sku) == found.total.after
    assert [row.key.sku for row in found.of_team("cv")] == ["nvidia.com/mig-1g.10gb"]


def test_the_platform_s_own_use_is_on_neither_side(october: None) -> None:
    assert {row.key.team for row in effect().rows} == {"nlp", "cv"}


def test_what_the_draft_forgets_is_named_not_priced_at_zero(october: None) -> None:
    found = effect(tokens=[{"model": "llama-3-8b", "input": "2", "cache_read": "0.2"}])
    assert [(item.sku, item.quantity, item.unit) for item in found.unpriced_after] == [
        ("llama-3-8b output", D(100_000), "tokens")
    ]
    assert found.unpriced_before == []
    gone = next(row for row in found.rows if row.key.token_class == "output")
    assert (gone.before, gone.after, gone.unpriced, gone.percent) == (D("0.80"), D("0.00"), True, None)
    shown = next(row for row in found.as_dict()["rows"] if row["token_class"] == "output")
    assert (shown["before"], shown["after"], shown["difference"], shown["percent"]) == ("0.80", None, None, None)
    assert found.total.percent is None


def test_a_price_for_what_had_none_shows_no_percent(october: None) -> None:
    ingest_allocations(allocation_record(4, namespace="cv", accelerator="NVIDIA-L40"), from_file=True)
    found = effect(gpu=[*DEARER["gpu"], {"accelerator": "NVIDIA-L40", "price_per_gpu_hour": "3"}])
    new = next(row for row in found.rows if row.key.sku == "NVIDIA-L40")
    assert (new.before, new.after, new.percent) == (D("0.00"), D("62.89"), None)
    assert [item.sku for item in found.unpriced_before] == ["NVIDIA-L40"]


def test_before_is_what_was_charged_also_where_prices_changed_within_the_month(october: None, tmp_path: Path) -> None:
    first = SET_UP["price_versions"][0]
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}, first["gpu"][1]]
    later = {**first, "name": "2026-10b", "valid_from": "2026-10-10T01:00:00Z", "gpu": gpu}
    apply(tmp_path, price_versions=[first, later])
    row = next(row for row in effect().rows if row.key.sku == "NVIDIA-H800")
    # 8 x 3600 s at 10 = 80.00; 8 x 5833 s = 12.962222... GPU-hours at 20 = 259.24
    assert (row.before, row.after) == (D("339.24"), D("262.03"))


def test_what_costs_the_same_shows_no_difference_also_where_its_line_was_cut(october: None, tmp_path: Path) -> None:
    first = SET_UP["price_versions"][0]
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}, first["gpu"][1]]
    apply(tmp_path, price_versions=[first, {**first, "name": "b", "valid_from": "2026-10-10T01:00:00Z", "gpu": gpu}])
    ingest_allocations(
        allocation_record(6, namespace="nlp-x", quantity=2, resource="nvidia.com/mig-1g.10gb", device_fraction="0.142857"),
        from_file=True,
    )
    slices = next(row for row in effect(gpu=first["gpu"]).of_team("nlp") if row.key.sku == "nvidia.com/mig-1g.10gb")
    # 2 x 3600 s at 1.7143 = 3.43 and 2 x 5833 s = 5.5553... = 5.56; in one line it would be 8.98
    assert (slices.before, slices.after) == (D("8.99"), D("8.99"))


def test_a_closed_month_is_compared_with_what_its_close_charged_and_nothing_is_written(october: None) -> None:
    period_close(month="2026-10", actor="ana", now=AFTER)
    ingest_allocations(allocation_record(5, namespace="cv"), from_file=True)  # late: belongs to the next close
    charged = list(Charge.objects.order_by("id").values())
    found = effect()
    assert (found.total.before, found.total.after) == (D("230.03"), D("275.15"))
    assert list(Charge.objects.order_by("id").values()) == charged


def test_the_same_list_has_no_effect(october: None) -> None:
    same = {
        "gpu": SET_UP["price_versions"][0]["gpu"],
        "tokens": SET_UP["price_versions"][0]["tokens"],
    }
    found = effect(**same)
    assert {row.difference for row in found.rows} == {D("0.00")}
    assert found.total.percent == D("0.00")


def test_a_month_without_usage_has_no_effect(october: None) -> None:
    found = draft_effect(draft=draft(), month="2026-08")
    assert (found.rows, found.total.before, found.total.percent) == ([], D("0.00"), None)


@pytest.mark.parametrize(
    ("now", "month"),
    [
        (datetime(2026, 10, 31, 15, 59, 59, tzinfo=UTC), "2026-09"),
        (datetime(2026, 10, 31, 16, tzinfo=UTC), "2026-10"),
        (datetime(2027, 1, 15, tzinfo=UTC), "2026-12"),
    ],
)
def test_the_last_month_is_the_last_that_has_ended_in_the_billing_zone(
    tmp_path: Path, now: datetime, month: str
) -> None:
    apply(tmp_path)
    assert last_month(now) == month


def test_the_page_has_totals_first_then_what_changes_and_the_rest_behind_a_count(october: None) -> None:
    client = signed_in(person("fin", "finance"))
    answer = client.get(f"/prices/drafts/{draft().pk}/effect/?month=2026-10")
    shown, text = answer.context["shown"], answer.content.decode()
    assert [
        (team.whole.key.team, [(row.key.sku, row.difference) for row in team.changed], len(team.same), team.same_amount)
        for team in shown.teams
    ] == [
        ("nlp", [("NVIDIA-H800", D("52.41")), ("llama-3-8b", D("0.20"))], 2, D("1.64")),
        ("cv", [("nvidia.com/mig-1g.10gb", D("-7.49"))], 0, D("0.00")),
    ]
    assert (shown.others, len(shown.same)) == ([], 2)
    at = [text.index(words) for words in ("+45.12", "NLP Research", "Vision", "<summary>2 lines without change", "1.60")]
    assert at == sorted(at)


def test_teams_for_whom_nothing_changes_are_one_row(october: None) -> None:
    same = SET_UP["price_versions"][0]
    content = {**same, "gpu": [{**same["gpu"][0], "price_per_gpu_hour": "11.0000"}, same["gpu"][1]]}
    found = draft(gpu=content["gpu"], tokens=content["tokens"])
    shown = signed_in(person("fin", "finance")).get(f"/prices/drafts/{found.pk}/effect/?month=2026-10").context["shown"]
    assert [team.whole.key.team for team in shown.teams] == ["nlp"]
    assert ([team.whole.key.team for team in shown.others], shown.others_amount, len(shown.same)) == (["cv"], D("17.97"), 4)
