"""What gateways send in formats of their own -> `TokenUsage`. Pure, but for the last line.

    cloudevents.py   CloudEvents 1.0, as LiteLLM's `openmeter` callback and OpenMeter clients send them
    lago.py          the events of Lago clients, LiteLLM's `lago` callback among them
    otlp.py          the spans and log records of OpenTelemetry about calls of models
    litellm.py       the StandardLoggingPayload of LiteLLM's generic API logger
    naming.py        which field of an event's data holds what
    translation.py   record by record: read, cut down, understand
    litellm_callback.py, outbox.py, outbox_command.py   what runs inside of a LiteLLM proxy, and keeps its own disk

A format is a `redacted` and a `usage` function. What `redacted` does not name is gone before anything else sees the
record: prompts and answers can reach neither the ledger nor the quarantine nor a log, whatever a gateway adds later.
"""
