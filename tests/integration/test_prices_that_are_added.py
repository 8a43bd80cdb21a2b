"""What has no price in open time gets one in the portal, by two persons; a draft says what was published since."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.closing.report import build_report
from billing.invoices.services.periods import period_open
from billing.rates.models import PriceVersion
from billing.rates.price_file import version_content
from billing.rates.services import PriceDraftError, price_draft_approve, price_draft_create, price_draft_submit
from billing.rating.selectors import closed_until
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record
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


def test_a_list_that_changes_a_price_does_not(october: None) -> None:
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "9.9999"}, *listed()["gpu"][1:]]
    same = {**listed(), "tokens": listed()["tokens"][:1]}
    for number, content in enumerate((listed(gpu=gpu), listed(tokens=[NEW]), same)):
        with pytest.raises(PriceDraftError, match="has passed"):
            published(content, name=f"changed-{number}")
    more = [*listed()["gpu"], {"resource": "nvidia.com/mig-2g.20gb", "price_per_slice_hour": "3.0000"}]
    with pytest.raises(PriceDraftError, match="has passed"):
        published(listed(gpu=more), name="a slice")


def test_nor_does_one_that_begins_in_a_closed_month(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    bill()
    assert closed_until() is not None
    with pytest.raises(PriceDraftError, match="has passed"):
        published(listed())


def test_the_form_begins_with_the_list_in_force_and_a_row_for_what_has_no_price(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2024-10-15T12:34:00+08:00", model="qwen-3"))
    page = signed_in(person("li", "finance")).get("/prices/drafts/new/?add=1").content.decode()
    assert [name in page for name in ("qwen-3", "llama-3-8b", 'value="2024-10"', "2024-10-15T12:00")] == [True] * 4


def test_a_draft_says_which_list_was_published_since(october: None) -> None:
    start = PriceVersion.objects.get(name="2026-10").valid_from
    draft = price_draft_create(
        name="2026-12", valid_from=start + timedelta(days=61), content=listed(), actor="ana", now=timezone.now()
    )
    client = signed_in(person("li", "finance"))
    assert "Written before another list" not in client.get(f"/prices/drafts/{draft.pk}/").content.decode()
    published(listed())
    page = client.get(f"/prices/drafts/{draft.pk}/").content.decode()
    assert "Written before another list" in page
    assert "2026-10-2 was published since" in page
