"""Price lists may begin in the past, where two persons agree, but not in a month that is closed."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.rates.models import PriceDraft
from billing.rates.services import PriceDraftError, price_draft_approve, price_draft_create, price_draft_submit
from tests.factories import apply
from tests.factories.closing import window_close
from tests.factories.prices import DECEMBER, LIST, NOW

pytestmark = pytest.mark.django_db
OCTOBER = DECEMBER - timedelta(days=61)  # 2026-10-01 in Shanghai
CLOSED = "is in a closed month"


@pytest.fixture(autouse=True)
def no_prices(tmp_path: Path) -> None:
    apply(tmp_path, price_versions=[])


def draft(name: str, **changed: Any) -> PriceDraft:
    return price_draft_create(
        **{"name": name, "valid_from": OCTOBER, "content": LIST, "actor": "ana", "now": NOW, **changed}
    )


def submit(made: PriceDraft) -> PriceDraft:
    return price_draft_submit(draft=made, actor="ana", now=NOW, reason="nothing has a price yet")


def test_lists_begin_in_the_past_while_no_month_is_closed() -> None:
    first, other = submit(draft("first")), submit(draft("other", valid_from=OCTOBER + timedelta(days=1)))

    assert price_draft_approve(draft=first, actor="ben", now=NOW).valid_from == OCTOBER
    assert price_draft_approve(draft=other, actor="ben", now=NOW).valid_from == OCTOBER + timedelta(days=1)


def test_no_list_begins_in_a_closed_month() -> None:
    first, later = draft("first"), submit(draft("later"))
    window_close(OCTOBER, OCTOBER + timedelta(days=31))

    with pytest.raises(PriceDraftError, match=CLOSED):
        submit(first)
    with pytest.raises(PriceDraftError, match=CLOSED):
        price_draft_approve(draft=later, actor="ben", now=NOW)
    assert submit(draft("december", valid_from=DECEMBER)).state == PriceDraft.State.SUBMITTED
    assert submit(draft("november", valid_from=OCTOBER + timedelta(days=31))).state == PriceDraft.State.SUBMITTED
