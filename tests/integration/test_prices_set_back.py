"""A price list that begins in open time and prices anew what was used: it says so, and waits for a second person."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.selectors import price_draft_named
from billing.rates.services import price_draft_approve, price_draft_reject
from billing.rating.price_warnings import draft_warnings
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories import signed_in as browser
from tests.factories.commands import THEN, Manage, since_2024
from tests.factories.price_api import signed_in

pytestmark = pytest.mark.django_db
BEGINS = "price list 2024-10 begins at 2024-10-10T00:00:00+08:00, "
ANEW = " days ago: what was used since of llama-3-8b is priced anew"


def declared(output: str = "9.0000", start: str = "2024-10-10T00:00:00+08:00", **billing: str) -> dict[str, Any]:
    """The set-up with a second list, in which output of llama-3-8b has another price and a new model has one."""
    sections = since_2024()
    (first,) = sections["price_versions"]
    model, *others = first["tokens"]
    tokens = [{**model, "output": output}, *others, {"model": "qwen-3", "input": "1.0000", "output": "4.0000"}]
    second = {**first, "name": "2024-10", "valid_from": start, "tokens": tokens}
    return {**sections, "billing": {**sections["billing"], **billing}, "price_versions": [first, second]}


@pytest.fixture
def used(tmp_path: Path) -> None:
    """Both models are used on 15 October."""
    apply(tmp_path, **since_2024())
    at = "2024-10-15T12:00:00+08:00"
    ingest_tokens(token_record(time=at), token_record(2, time=at, model="qwen-3"))


def file_of(directory: Path, sections: dict[str, Any]) -> Path:
    path = directory / "second.yaml"
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    return path


def test_a_declared_list_that_prices_anew_what_was_used_says_so(used: None, tmp_path: Path) -> None:
    (warning,) = apply(tmp_path, **declared()).warnings
    assert warning.startswith(BEGINS)
    assert warning.endswith(ANEW)
    assert PriceVersion.objects.filter(name="2024-10").exists()
    assert apply(tmp_path, **declared()).warnings == []


@pytest.mark.parametrize("changed", [{"output": "8.0000"}, {"start": "2024-10-16T00:00:00+08:00"}])
def test_a_list_that_only_adds_or_begins_later_says_nothing(used: None, tmp_path: Path, changed: dict[str, str]) -> None:
    assert apply(tmp_path, **declared(**changed)).warnings == []


def test_lists_of_one_file_price_nothing_anew(tmp_path: Path) -> None:
    sections = declared()
    apply(tmp_path, **{**sections, "price_versions": []})
    ingest_tokens(token_record(time="2024-10-15T12:00:00+08:00"))
    assert apply(tmp_path, **sections).warnings == []


def test_where_documents_take_two_persons_it_waits_for_the_second(
    used: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manage, path = Manage(capsys), file_of(tmp_path, declared(review="four-eyes"))
    for changes in ("2 changes", "0 changes"):
        done = manage("apply", path)
        assert done.status == 3
        assert changes in done.out
        assert "2024-10 waits for approval by a second person" in done.out
        assert f"warning: {BEGINS}" in done.err
    assert not PriceVersion.objects.filter(name="2024-10").exists()

    draft = price_draft_named("2024-10")
    assert draft is not None
    assert (draft.state, draft.valid_from.isoformat()) == (PriceDraft.State.SUBMITTED, "2024-10-09T16:00:00+00:00")
    price_draft_approve(draft=draft, actor="ben", now=timezone.now())
    done = manage("apply", path)
    assert (done.status, done.err) == (0, "")
    assert "0 changes" in done.out


def test_a_list_that_was_sent_back_is_not_submitted_again_unchanged(used: None, tmp_path: Path) -> None:
    apply(tmp_path, **declared(review="four-eyes"))
    draft = price_draft_named("2024-10")
    assert draft is not None
    price_draft_reject(draft=draft, actor="ben", reason="October was announced at 8.0000", now=timezone.now())
    with pytest.raises(ValueError, match="was sent back by ben: October was announced"):
        apply(tmp_path, **declared(review="four-eyes"))
    assert apply(tmp_path, **declared("8.5000", review="four-eyes")).waiting == ["2024-10"]
    draft.refresh_from_db()
    assert (draft.state, draft.content["tokens"][0]["output"]) == (PriceDraft.State.SUBMITTED, "8.5000")


def test_a_draft_of_the_api_and_its_page_warn(used: None, tmp_path: Path) -> None:
    second = declared()["price_versions"][1]
    caller = signed_in("ana", "finance")
    answer = caller("POST", "price-versions", {**second, "reason": "power is dearer since the 10th"})
    assert answer.status_code == 201, answer.content
    (warning,) = answer.json()["warnings"]
    assert warning.startswith(BEGINS)
    assert warning.endswith(ANEW)
    assert caller("POST", "price-versions/2024-10/submit", {}).json()["warnings"] == [warning]

    draft = price_draft_named("2024-10")
    assert draft is not None
    page = browser(person("cy", "approver")).get(f"/prices/drafts/{draft.pk}/").content.decode()
    assert "Begins in the past" in page
    assert ANEW in page
    price_draft_approve(draft=draft, actor="ben", now=timezone.now())
    draft.refresh_from_db()
    assert draft_warnings(draft, timezone.now()) == {}


def test_gpu_time_is_priced_anew_too(tmp_path: Path) -> None:
    apply(tmp_path, **since_2024())
    ingest_allocations(allocation_record(**{**THEN, "observed_until": THEN["ended_at"]}))
    sections = declared("8.0000")
    first, second = sections["price_versions"]
    dearer = [{**second["gpu"][0], "price_per_gpu_hour": "11.0000"}, *second["gpu"][1:]]
    (warning,) = apply(tmp_path, **{**sections, "price_versions": [first, {**second, "gpu": dearer}]}).warnings
    assert "of NVIDIA-H800 is priced anew" in warning
