"""What has no price in open time gets one in the portal, by two persons; a draft says what was published since."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.closing.report import build_report
from billing.inbox.services import findings_refresh
from billing.invoices.services.periods import period_open
from billing.portal.first_prices import missing_prices
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.price_file import version_content
from billing.rates.selectors import price_version_before, rate_card, version_in_force
from billing.rates.services import (
    PriceDraftError,
    price_draft_approve,
    price_draft_create,
    price_draft_edit,
    price_draft_rebase,
    price_draft_submit,
)
from billing.rating.price_warnings import draft_warnings
from billing.rating.selectors import closed_until
from metering.intervals import month_of, next_month
from tests.factories import (
    allocation_record,
    apply,
    ingest_allocations,
    ingest_tokens,
    person,
    signed_in,
    token_record,
)
from tests.factories.commands import since_2024
from tests.factories.corrections import bill
from tests.factories.months import OCTOBER_OVER

pytestmark = pytest.mark.django_db
NEW = {"model": "qwen-3", "input": "1.0000", "cache_read": "0.1000", "cache_creation": "1.0000", "output": "4.0000"}


def listed(**changed: Any) -> dict[str, Any]:
    """The list in force with a price for the new model."""
    content = version_content(PriceVersion.objects.get(name="2026-10"))
    return {"gpu": content["gpu"], "tokens": [*content["tokens"], NEW], **changed}


def published(content: dict[str, Any], days: int = 9, name: str = "2026-10-2") -> PriceVersion:
    start = PriceVersion.objects.get(name="2026-10").valid_from + timedelta(days=days)
    draft = price_draft_create(name=name, valid_from=start, content=content, actor="ana", now=OCTOBER_OVER)
    price_draft_submit(draft=draft, actor="ana", now=OCTOBER_OVER, reason="a model without a price")
    return price_draft_approve(draft=draft, actor="ben", now=OCTOBER_OVER)


@pytest.fixture
def october(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(), token_record(2, model="qwen-3"))
    assert [item.kind for item in october_report().exceptions] == ["unpriced"] * 3


def october_report() -> Any:
    return build_report(period_open(month="2026-10"), now=OCTOBER_OVER)


def test_a_list_that_only_adds_a_price_begins_in_open_time(october: None) -> None:
    assert published(listed()).name == "2026-10-2"
    assert october_report().exceptions == []


def test_a_list_in_the_place_of_another_begins_with_it(october: None) -> None:
    """The model is used from the first hour of the list on."""
    made = published(listed(), days=0)
    bounds = PriceVersion.objects.order_by("pk").values_list("name", "valid_from", "valid_until")
    start = made.valid_from
    assert list(bounds) == [("2026-10", start, start), ("2026-10-2", start, None)]
    assert october_report().exceptions == []
    assert [version.name for version in rate_card().versions] == ["2026-10-2"]
    again = published(listed(tokens=[*listed()["tokens"][:1], {**NEW, "input": "2.0000"}]), days=0, name="2026-10-3")
    assert version_in_force(again.valid_from) == again
    before = price_version_before(again)
    assert before == made


def test_nothing_begins_in_a_closed_month(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    assert closed_until() is not None
    with pytest.raises(PriceDraftError, match=r"is in a closed month: lists begin at 2026-11-01T00:00:00\+08:00"):
        published(listed())


def test_a_first_use_in_the_first_hour_is_suggested_with_that_hour(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2024-01-01T00:00:00+08:00", model="qwen-3"))
    page = signed_in(person("li", "finance")).get("/prices/drafts/new/?add=1").content.decode()
    assert [name in page for name in ("qwen-3", 'value="2024-01"', "2024-01-01T00:00")] == [True] * 3


def test_usage_under_an_earlier_list_is_solved_first(tmp_path: Path) -> None:
    """Used from 3 October on, a list without the model began on the 10th: two lists follow, from the 3rd and the 10th."""
    versions = since_2024()["price_versions"]
    second = {**versions[0], "name": "second", "valid_from": "2024-10-10T00:00:00+08:00"}
    apply(tmp_path, **since_2024(price_versions=[*versions, second]))
    times = ("2024-10-03T05:30:00+08:00", "2024-10-10T00:30:00+08:00")
    ingest_tokens(*(token_record(number, time=at, model="qwen-3") for number, at in enumerate(times, 1)))
    starts = []
    for name in ("third", "fourth"):
        missing = missing_prices(timezone.now())
        assert missing is not None
        assert missing.rows == {"gpu": [], "tokens": [{"model": "qwen-3"}]}
        starts.append(missing.start.isoformat())
        content = version_content(missing.base)
        facts = {"valid_from": missing.start, "content": {**content, "tokens": [*content["tokens"], NEW]}}
        now = timezone.now()
        draft = price_draft_create(name=name, actor="ana", now=now, **facts)
        price_draft_submit(draft=draft, actor="ana", now=now, reason="qwen-3 has no price")
        price_draft_approve(draft=draft, actor="ben", now=now)
    assert starts == ["2024-10-02T21:00:00+00:00", "2024-10-09T16:00:00+00:00"]
    assert missing_prices(timezone.now()) is None


def test_usage_before_the_first_list_gets_prices_of_that(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2023-12-31T07:30:00+08:00"))
    missing = missing_prices(timezone.now())
    assert missing is not None
    assert (missing.start.isoformat(), missing.rows) == ("2023-12-30T23:00:00+00:00", {"gpu": [], "tokens": []})


def test_the_form_begins_with_the_list_in_force_and_a_row_for_what_has_no_price(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2024-10-15T12:34:00+08:00", model="qwen-3"))
    page = signed_in(person("li", "finance")).get("/prices/drafts/new/?add=1").content.decode()
    assert [name in page for name in ("qwen-3", "llama-3-8b", 'value="2024-10"', "2024-10-15T12:00")] == [True] * 4


def test_a_draft_names_its_base_and_takes_over_what_was_published_since(october: None) -> None:
    """It was begun from 2026-10 with a dearer card. 2026-10-2 adds a model and lowers another: both are taken over."""
    start = PriceVersion.objects.get(name="2026-10").valid_from
    content = version_content(PriceVersion.objects.get(name="2026-10"))
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11.0000"}, *content["gpu"][1:]]
    draft = price_draft_create(
        name="2026-12", valid_from=start + timedelta(days=61), content={**content, "gpu": gpu}, actor="ana",
        now=timezone.now(),
    )  # fmt: skip
    client = signed_in(person("li", "finance"))
    page = client.get(f"/prices/drafts/{draft.pk}/").content.decode()
    assert "Based on" in page
    assert "Written before another list" not in page
    with pytest.raises(PriceDraftError, match="2026-12 follows the list that it was begun from"):
        price_draft_rebase(draft=draft, actor="li", now=timezone.now())

    lowered = {**content["tokens"][0], "output": "7.0000"}
    published({"gpu": content["gpu"], "tokens": [lowered, NEW]})
    page = client.get(f"/prices/drafts/{draft.pk}/").content.decode()
    assert "Written before another list" in page
    assert "2026-10-2 was published since 2026-12 was begun, from 2026-10: it takes back the prices of" in page
    assert "llama-3-8b, qwen-3" in page
    price_draft_edit(draft=draft, actor="ana", now=timezone.now(), reason="cards are dearer")
    assert draft_warnings(draft, timezone.now()).keys() == {"taken_back"}  # the prices are the same as before

    answer = client.post(f"/prices/drafts/{draft.pk}/rebase/", {"revision": 2})
    assert answer.status_code == 302
    draft = PriceDraft.objects.get(pk=draft.pk)
    assert (draft.content, draft.payload["base"], draft.reason) == (
        {"gpu": gpu, "tokens": [lowered, NEW]}, "2026-10-2", "cards are dearer",
    )  # fmt: skip
    assert draft_warnings(draft, timezone.now()) == {}


def test_a_draft_from_an_older_list_says_what_it_takes_back(october: None) -> None:
    published(listed())
    content = version_content(PriceVersion.objects.get(name="2026-10"))
    start = PriceVersion.objects.get(name="2026-10").valid_from
    facts = {"valid_from": start + timedelta(days=61), "content": content, "actor": "ana", "now": OCTOBER_OVER}
    draft = price_draft_create(name="back", base="2026-10", **facts)
    assert draft_warnings(draft, OCTOBER_OVER)["taken_back"].endswith("it takes back the prices of qwen-3")
    assert draft_warnings(price_draft_create(name="own", **facts), OCTOBER_OVER) == {}
    with pytest.raises(PriceDraftError, match="based_on: '2026-11' is no published price list"):
        price_draft_create(name="other", base="2026-11", **facts)


def test_the_page_of_prices_leads_to_what_has_none(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2024-10-15T12:34:00+08:00", model="qwen-3", cache_read_input_tokens=0))
    findings_refresh(now=timezone.now())
    page = signed_in(person("li", "finance")).get("/prices/").content.decode()
    assert "qwen-3 input, qwen-3 output" in page
    assert "/prices/drafts/new/?add=1" in page
    assert "/prices/drafts/new/?add=1" not in signed_in(person("kim", "lead", team="nlp")).get("/prices/").content.decode()


def test_what_is_suggested_is_free(tmp_path: Path) -> None:
    """Lists of the next months are published: the form suggests the month after them."""
    first, *_ = since_2024()["price_versions"]
    months = [next_month(month_of(timezone.now(), "Asia/Shanghai"))]
    months.append(next_month(months[0]))
    later = [{**first, "name": name, "valid_from": f"{name}-01T00:00:00+08:00"} for name in months]
    apply(tmp_path, **since_2024(price_versions=[{**first, "name": "first"}, *later]))
    page = signed_in(person("li", "finance")).get("/prices/drafts/new/").content.decode()
    last = next_month(months[1])
    assert f'value="{last}"' in page
    assert f"{last}-01T00:00" in page
    assert f"It begins from {months[1]}." in page
