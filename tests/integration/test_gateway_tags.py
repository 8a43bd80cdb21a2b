"""Tiers, finer counts and tags through the endpoints of gateways; a tag outside the list goes nowhere."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from billing.usage.models import QuarantinedRecord
from billing.usage.services.replay import quarantine_replay
from tests.factories import AFTER, apply
from tests.factories.api import gateway
from tests.gateway_records import cloud_event, lago_event, payload
from tests.stored_rows import everything_stored, query

pytestmark = pytest.mark.django_db
SECRET = "a-secret-of-nobody"
SOURCE = "litellm-hq"
TAGS = [
    {"source": SOURCE, "key": "product", "from": "request_tags", "longest": "16"},
    {"source": SOURCE, "key": "customer", "from": "metadata.client"},
    {"source": SOURCE, "key": "team"},
]
ASKED = {"request_tags": ["product:chat-bot", f"user:{SECRET}", SECRET], "metadata": {"client": "acme", "note": SECRET}}
DATA = {"model": "m", "input_tokens": 100, "output_tokens": 20, "service_tier": "Priority", "searches": 2,
        "tags": {"team": "nlp", "user": SECRET}, **ASKED}  # fmt: skip


@pytest.fixture(autouse=True)
def clock_of_the_captures() -> Any:
    with override_settings(FUTURE_TOLERANCE_SECONDS=10**9, STATIC_ROOT=None):
        yield


def litellm(**changed: Any) -> dict[str, Any]:
    """As the generic API logger sends it."""
    return payload(
        request_tags=ASKED["request_tags"], model_id="east-2", response={"service_tier": "default", "x": SECRET},
        metadata={"requester_metadata": ASKED["metadata"], **changed.pop("metadata", {})}, **changed,
    )  # fmt: skip


def stored() -> list[Any]:
    return query("""SELECT service_tier, deployment, searches, tags FROM token_detail
                    LEFT JOIN token_tag_set ON token_tag_set.id = tag_set ORDER BY service_tier""")


def sent(endpoint: str, *, good: bool) -> tuple[Any, str]:
    """What an endpoint answers to a record with tags, and all that was logged meanwhile."""
    wrong: dict[str, Any] = {} if good else {"output_tokens": -1}
    bodies: dict[str, tuple[Any, str]] = {
        "usage/litellm": (
            [litellm() if good else litellm(metadata={"usage_object": {"prompt_tokens": 5, "total_tokens": 9}})],
            "application/json",
        ),
        "events": (cloud_event(type="t", source=SOURCE, data=DATA | wrong), "application/cloudevents+json"),
        "events/batch": ({"events": [lago_event(code="t", properties=DATA | wrong)]}, "application/json"),
    }
    content, kind = bodies[endpoint]
    return gateway(source=SOURCE)(endpoint, content, kind)


KEPT = {
    "usage/litellm": ("standard", "east-2", None, {"product": "chat-bot", "customer": "acme"}),
    "events": ("priority", None, 2, {"product": "chat-bot", "customer": "acme", "team": "nlp"}),
    "events/batch": ("priority", None, 2, {"product": "chat-bot", "customer": "acme", "team": "nlp"}),
}


@pytest.mark.parametrize("endpoint", sorted(KEPT))
def test_a_gateway_s_tier_and_listed_tags_are_kept(
    endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply(tmp_path, tags=TAGS)
    with caplog.at_level(logging.DEBUG):
        answer = sent(endpoint, good=True)
    assert answer.status_code in (200, 204)
    [(tier, deployment, searches, tags)] = stored()
    found = json.loads(tags) if isinstance(tags, str) else tags
    assert (tier, deployment, searches, found) == KEPT[endpoint]
    assert SECRET not in everything_stored() + caplog.text + answer.content.decode()


@pytest.mark.parametrize("endpoint", sorted(KEPT))
def test_what_is_refused_has_listed_tags_only_and_keeps_them(
    endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply(tmp_path, tags=TAGS)
    with caplog.at_level(logging.DEBUG):
        answer = sent(endpoint, good=False)
    entry = QuarantinedRecord.objects.get()
    assert SECRET not in everything_stored() + caplog.text + answer.content.decode()
    corrected = entry.record.replace('":-1', '":20').replace('"total_tokens":9', '"completion_tokens":4')
    quarantine_replay(record_id=entry.pk, actor="ops", reason="sign", now=AFTER, corrected=corrected)
    [(tier, _, _, tags)] = stored()
    assert tier == KEPT[endpoint][0]
    assert (json.loads(tags) if isinstance(tags, str) else tags) == KEPT[endpoint][3]


@pytest.mark.parametrize("endpoint", sorted(KEPT))
def test_without_a_list_no_tag_is_kept(endpoint: str, db: None) -> None:
    sent(endpoint, good=True)
    sent(endpoint, good=False)
    assert [tags for *_, tags in stored()] == [None]
    assert not any(word in everything_stored() for word in (SECRET, "chat-bot", "acme", "nlp"))


def test_a_reporter_that_read_the_tags_itself_states_them_by_their_keys(tmp_path: Path) -> None:
    """The callback sends `product`, wherever the rule finds it in what LiteLLM says."""
    apply(tmp_path, tags=TAGS)
    record = {"id": "r", "source": SOURCE, "time": "2026-10-15T12:00:00Z", "consumer": "c", "model": "m", "input_tokens": 1,
              "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1,
              "reasoning_output_tokens": 0, "tags": {"product": "x" * 17, "customer": "acme", "user": SECRET}}  # fmt: skip
    gateway()("usage/tokens", [record])
    [(*_, tags)] = stored()
    assert (json.loads(tags) if isinstance(tags, str) else tags) == {"product": None, "customer": "acme"}
    assert SECRET not in everything_stored()
