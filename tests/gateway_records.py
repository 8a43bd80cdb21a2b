"""Records as gateways send them, with a marker wherever prompts and answers may stand."""

import json
from pathlib import Path
from typing import Any

from metering.gateways.outbox import FILE, open_outbox

SECRET = "the-prompt-nobody-may-read"


def cloud_event(**changed: Any) -> dict[str, Any]:
    """The event that LiteLLM's `openmeter` callback sends."""
    return {
        "specversion": "1.0", "type": "litellm_tokens", "id": "chatcmpl-1", "time": "2026-10-15T12:00:00+08:00",
        "subject": "alice", "source": "litellm-proxy",
        "data": {"model": "demo-chat", "cost": 0.1, "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30},
        **changed,
    }  # fmt: skip


def lago_event(**changed: Any) -> dict[str, Any]:
    """The event that LiteLLM's `lago` callback sends, without its envelope."""
    return {
        "transaction_id": "t-1", "external_subscription_id": "alice", "code": "litellm_tokens",
        "properties": {"model": "demo-chat", "response_cost": 0.1, "prompt_tokens": 10, "completion_tokens": 20}, **changed,
    }  # fmt: skip


def payload(**changed: Any) -> dict[str, Any]:
    """A StandardLoggingPayload of a success, with content wherever LiteLLM puts any."""
    metadata = {
        "user_api_key_hash": "hash-1", "user_api_key_alias": "alias-1", "user_api_key_team_id": "team-1",
        "user_api_key_end_user_id": "mallory",
        "usage_object": {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130,
                         "prompt_tokens_details": {"cached_tokens": 64, "text_tokens": 36},
                         "completion_tokens_details": {"reasoning_tokens": 12}},
        "requester_metadata": {"note": SECRET},
        **changed.pop("metadata", {}),
    }  # fmt: skip
    return {
        "id": "chatcmpl-1", "litellm_call_id": "call-1", "call_type": "acompletion", "status": "success", "stream": True,
        "startTime": 1795209030.350369, "endTime": 1795209031.0, "model": "openai/demo-chat", "model_group": "demo-chat",
        "custom_llm_provider": "openai", "prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130,
        "response_cost": 0.5, "error_str": None, "error_information": {"error_code": "", "traceback": SECRET},
        "messages": [{"role": "user", "content": SECRET}], "response": {"choices": [SECRET]}, "metadata": metadata,
        **changed,
    }  # fmt: skip


def kept(folder: Path) -> list[dict[str, Any]]:
    """The records that wait in the outbox of this folder, oldest first."""
    connection = open_outbox(folder / FILE)
    rows = connection.execute("SELECT body FROM outbox WHERE NOT packed ORDER BY id").fetchall()
    connection.close()
    return [json.loads(body) for (body,) in rows]
