"""A record as a gateway would report it, for the golden cases."""

from metering.records import TokenUsage, from_row


def token_usage(input_tokens: int, cached: int) -> TokenUsage:
    """A request with so much input, of which so much was read from the cache."""
    return from_row(
        TokenUsage,
        {
            "id": "1", "source": "s", "time": "2026-03-05T00:00:00Z", "consumer": "k", "model": "m",
            "input_tokens": input_tokens, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
            "output_tokens": 1, "reasoning_output_tokens": 0,
        },
    )  # fmt: skip
