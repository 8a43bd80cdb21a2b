"""The write doors against their own OpenAPI description: whatever fits it or just does not, they answer as described."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from billing.tenancy.tokens import api_token_create
from tests.factories.servers import WebProcess, web_process

ENDPOINTS = (
    "/api/v1/usage/tokens", "/api/v1/usage/gpu-allocations", "/api/v1/usage/capacity", "/api/v1/usage/efficiency",
    "/api/v1/usage/litellm", "/api/v1/events", "/api/v1/events/batch",
    "/api/v1/usage/engine-counters", "/api/v1/usage/watermarks",
)  # fmt: skip
EXAMPLES = 15
pytestmark = pytest.mark.hypothesis
NOT_BY_STATUS = [negative_data_rejection, positive_data_acceptance]
"""A bad record never fails its batch: it is refused in the answer, not by the status."""


@pytest.fixture
def web(transactional_db: None) -> Iterator[WebProcess]:
    with web_process(INVALID_TOKENS_PER_MINUTE="0") as process:
        yield process


def test_the_write_endpoints_answer_as_they_are_described(web: WebProcess) -> None:
    """No server error, no undocumented status, type or shape; nothing that breaks the description is taken for good."""
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/schema/?format=json")
    headers = {"Authorization": f"Bearer {api_token_create(name='st', scopes=['usage:write'], actor='tests')[1]}"}
    for endpoint in ENDPOINTS:
        _fuzz(schema[endpoint]["POST"], headers)


def _fuzz(operation: Any, headers: dict[str, str]) -> None:
    @given(case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def check(case: Any) -> None:
        case.call_and_validate(headers=headers, excluded_checks=NOT_BY_STATUS)

    check()
