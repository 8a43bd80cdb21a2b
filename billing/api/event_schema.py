"""OpenAPI parts of the gateways' own formats: the fields that are read."""

from typing import Any

from billing.api.schema import INGEST_ANSWER

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
MAYBE_COUNT: dict[str, Any] = {**COUNT, "nullable": True}

COUNTS: dict[str, Any] = {
    "type": "object",
    "description": "model and token counts; the names are those of TokenUsage unless configured for the type",
    "properties": {
        "model": TEXT,
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "cache_read_input_tokens": MAYBE_COUNT,
        "cache_creation_input_tokens": MAYBE_COUNT,
        "reasoning_output_tokens": MAYBE_COUNT,
        "prompt_tokens": {**COUNT, "description": "input of type litellm_tokens"},
        "completion_tokens": {**COUNT, "description": "output of type litellm_tokens"},
    },
}

CLOUD_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["specversion", "type", "source", "id", "subject", "data"],
    "properties": {
        "specversion": {"type": "string", "enum": ["1.0"]},
        "type": TEXT,
        "source": TEXT,
        "id": TEXT,
        "time": {"type": "string", "format": "date-time", "description": "time of arrival where it is missing"},
        "subject": {**TEXT, "description": "the consumer"},
        "data": COUNTS,
    },
}

LAGO_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event"],
    "properties": {
        "event": {
            "type": "object",
            "required": ["transaction_id", "code", "properties"],
            "properties": {
                "transaction_id": TEXT,
                "external_subscription_id": {**TEXT, "description": "the consumer"},
                "external_customer_id": {**TEXT, "description": "the consumer where no subscription is named"},
                "code": TEXT,
                "timestamp": {"oneOf": [{"type": "number"}, {"type": "string"}]},
                "properties": COUNTS,
            },
        }
    },
}

ECHO: dict[str, Any] = {
    "type": "object",
    "properties": {
        "lago_id": {"type": "string", "format": "uuid"},
        "transaction_id": {"type": "string"},
        "lago_customer_id": {"type": "string", "nullable": True},
        "lago_subscription_id": {"type": "string", "nullable": True},
        "external_subscription_id": {"type": "string", "nullable": True},
        "code": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time"},
        "properties": {"type": "object"},
        "created_at": {"type": "string", "format": "date-time"},
    },
}

LAGO_ECHO: dict[str, Any] = {"type": "object", "required": ["event"], "properties": {"event": ECHO}}

LAGO_BATCH_ANSWER: dict[str, Any] = {
    **INGEST_ANSWER,
    "properties": {**INGEST_ANSWER["properties"], "events": {"type": "array", "items": ECHO}},
}

LITELLM_PAYLOAD: dict[str, Any] = {
    "type": "object",
    "description": "LiteLLM's StandardLoggingPayload; only these fields are read, all others are discarded",
    "required": ["id", "status", "startTime", "metadata"],
    "properties": {
        "id": TEXT,
        "litellm_call_id": {"type": "string"},
        "status": {"type": "string"},
        "startTime": {"type": "number"},
        "model": {"type": "string"},
        "model_group": {"type": "string"},
        "custom_llm_provider": {"type": "string", "nullable": True},
        "call_type": {"type": "string"},
        "cache_hit": {"type": "boolean", "nullable": True, "description": "true: LiteLLM's own cache answered, no tokens"},
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": COUNT,
        "metadata": {"type": "object", "description": "user_api_key_hash, user_api_key_team_id, usage_object, ..."},
        "error_information": {"type": "object", "description": "error_code"},
    },
}
