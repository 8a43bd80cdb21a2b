"""Half a character in one record, as clients send it that cut texts between UTF-16 units: JSON by its grammar, no text."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import override_settings

from billing.tenancy.tokens import api_token_create
from billing.usage.models import QuarantinedRecord
from tests.factories import allocation_record, token_record
from tests.gateway_records import lago_event, payload

pytestmark = pytest.mark.django_db

Post = Callable[[str, object], dict[str, Any]]
HALF, WHOLE = "\ud83d", "\U0001f600 \\ud83d"  # WHOLE: a pair of escapes; a backslash before letters


@pytest.fixture(autouse=True, scope="session")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """WhiteNoise warns where nobody has collected static files yet, and warnings are errors."""
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        yield


@pytest.fixture
def post(client: Any) -> Post:
    presented = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]

    def send(endpoint: str, body: object) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {presented}"}
        answer = client.post(f"/api/v1/{endpoint}", json.dumps(body), content_type="application/json", headers=headers)
        assert answer.status_code == 200, answer.content
        reported: dict[str, Any] = answer.json()
        return reported

    return send


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("usage/tokens", [token_record(1), token_record(2, consumer=f"key {HALF}")]),
        ("usage/gpu-allocations", {"allocations": [allocation_record(1), allocation_record(2, pod=HALF)]}),
        ("events/batch", {"events": [lago_event(), lago_event(transaction_id="t-2", external_subscription_id=HALF)]}),
    ],
)
def test_one_record_never_fails_its_batch(post: Post, endpoint: str, body: object) -> None:
    answer = post(endpoint, body)
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [1])
    assert "half a character" in answer["rejected"][0]["error"]
    assert QuarantinedRecord.objects.count() == 1


def test_a_prompt_that_is_thrown_away_costs_nobody_the_usage(post: Post) -> None:
    sent = [payload(id="a", messages=HALF), payload(id="b", messages=WHOLE)]
    assert post("usage/litellm", sent) == {"accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": []}


def test_whole_characters_beside_it_stay_what_they_are(post: Post) -> None:
    whole = token_record(1, consumer=WHOLE)
    assert post("usage/tokens", [whole, token_record(2, consumer=HALF)])["accepted"] == 1
    assert post("usage/tokens", [whole])["duplicates"] == 1
