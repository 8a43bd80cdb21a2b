"""Several people at one draft or change in the same instant: each decision counts once, and none that nobody looked at."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import (
    PriceDraftError,
    RateError,
    price_draft_approve,
    price_draft_create,
    price_draft_edit,
    price_draft_submit,
)
from billing.rating.models import RetroactiveChange
from tests.factories import apply
from tests.factories.corrections import IN_NOVEMBER, account, billed_october, proofs_hold
from tests.factories.prices import DECEMBER, LIST, NOW
from tests.factories.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)
PEOPLE = 6
OCTOBER = datetime(2026, 9, 30, 16, tzinfo=UTC)


def endings(*calls: Callable[[], Any]) -> list[str]:
    """What became of each at the same time: "done" or the field that was refused."""
    return [ending(found) for found in at_once(*calls)]


def ending(found: Any) -> str:
    if isinstance(found, PriceDraftError):
        return next(iter(found.by_field))
    if isinstance(found, RateError):
        return "overlap"
    return repr(found) if isinstance(found, Exception) else "done"


def submitted(name: str = "2026-12", start: datetime = DECEMBER) -> PriceDraft:
    draft = price_draft_create(name=name, valid_from=start, content=LIST, actor="ana", now=NOW, reason="dearer power")
    return price_draft_submit(draft=draft, actor="ana", now=NOW)


def approval(draft: PriceDraft, actor: str) -> Callable[[], Any]:
    return lambda: price_draft_approve(draft=draft, actor=actor, now=NOW, revision=1)


def test_of_many_approvers_one_publishes(tmp_path: Path) -> None:
    apply(tmp_path)
    draft = submitted()
    ended = endings(*(approval(draft, f"approver-{number}") for number in range(PEOPLE)))
    assert sorted(ended) == ["done", *["state"] * (PEOPLE - 1)]
    version = PriceVersion.objects.get(name="2026-12")
    assert version.published_by == f"approver-{ended.index('done')}"
    assert version.gpu.count() == 2


def test_an_edit_and_an_approval_never_both_count(tmp_path: Path) -> None:
    apply(tmp_path)
    draft = submitted()
    edit = {"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "99"}]}
    approved, edited = endings(
        approval(draft, "ben"), lambda: price_draft_edit(draft=draft, actor="cem", now=NOW, content=edit)
    )
    draft.refresh_from_db()
    assert (approved, edited, draft.state) in (("done", "state", "approved"), ("revision", "done", "draft"))
    assert PriceVersion.objects.filter(name="2026-12").exists() == (approved == "done")
    assert not PriceVersion.objects.filter(gpu__price=99).exists()


def test_lists_that_are_approved_at_once_follow_each_other_without_gap(tmp_path: Path) -> None:
    apply(tmp_path)
    starts = [datetime(2027, month, 1, tzinfo=UTC) for month in range(1, 5)]
    drafts = [submitted(f"2027-{number}", start) for number, start in enumerate(starts, start=1)]
    assert endings(*(approval(draft, "ben") for draft in drafts)) == ["done"] * len(drafts)
    rows = list(PriceVersion.objects.order_by("valid_from").values_list("name", "valid_from", "valid_until"))
    assert [row[0] for row in rows] == ["2026-10", "2027-1", "2027-2", "2027-3", "2027-4"]
    assert [row[2] for row in rows] == [*starts, None]


def test_two_drafts_of_one_name_made_at_once_are_one(tmp_path: Path) -> None:
    apply(tmp_path)
    calls = [
        lambda actor=f"maker-{number}": price_draft_create(
            name="2026-12", valid_from=DECEMBER, content=LIST, actor=actor, now=NOW
        )
        for number in range(PEOPLE)
    ]
    assert sorted(endings(*calls)) == ["done", *["name"] * (PEOPLE - 1)]
    assert PriceDraft.objects.count() == 1


def test_two_changes_of_closed_time_follow_each_other(tmp_path: Path) -> None:
    """nlp was billed 100 GPU-hours at 10; each change takes back what stood when it was approved."""
    billed_october(tmp_path)
    changes = [
        retroactive_propose(
            kind="price", name=f"at-{price}", valid_from=OCTOBER, valid_until=None, reason="typed twice", evidence="INC-1",
            fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": price}]}, actor="sam", now=IN_NOVEMBER,
        ) for price in ("9", "8")
    ]  # fmt: skip
    approvals = (partial(retroactive_approve, change_id=one.pk, actor="fin", now=IN_NOVEMBER) for one in changes)
    assert endings(*approvals) == ["done", "done"]
    last = RetroactiveChange.objects.get(change_seq=2)
    assert account("nlp") == {"at-9": Decimal("900.00"), "at-8": Decimal("800.00")}[last.name]
    assert proofs_hold("2026-10")
