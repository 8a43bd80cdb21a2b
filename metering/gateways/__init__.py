"""Translation of gateways' own formats into `TokenUsage`. All modules are pure, but for those of the last line.

    cloudevents.py   CloudEvents 1.0, as LiteLLM's `openmeter` callback and OpenMeter clients send them
    lago.py          the events of Lago clients, LiteLLM's `lago` callback among them
    otlp.py          the spans and log records of OpenTelemetry about calls of models
    litellm.py       the StandardLoggingPayload of LiteLLM's generic API logger
    naming.py        names of the fields in an event's data
    translation.py   record by record: decode, reduce to known fields, interpret
    litellm_callback.py, outbox.py, outbox_command.py   code inside of a LiteLLM proxy, with an outbox on its disk

A format is a `redacted` and a `usage` function. A field that `redacted` does not name is dropped before any other code sees
the record: prompts and answers can reach neither the ledger nor the quarantine nor a log, whatever a gateway adds later.
"""
