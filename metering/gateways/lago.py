"""Format of Lago clients, among them LiteLLM's `lago` callback: {"event": {...}}, or {"events": [...]} for a batch.

The subscription is the consumer (or the customer, if no subscription is named), `transaction_id` is the identity within the
gateway, the code selects the naming of the properties. LiteLLM makes a fresh `transaction_id` for each sending and has no
timestamp; such a record is dated when it arrives first.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from metering.gateways.naming import Naming, data_usage, known_data, named_and_numbers, naming_of, tags_of_data
from metering.gateways.translation import Fields, from_epoch, required, text, usage_of
from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import RFC_3339, TokenUsage, shown
from metering.request_tags import TagChoice
from metering.token_usage import refuse_unread

EVENT: Final = ("transaction_id", "external_subscription_id", "external_customer_id", "code", "timestamp")


def redacted(
    event: Fields, *, source: str, namings: Mapping[str, Naming], tags: Sequence[TagChoice] = ()
) -> Fields:
    """Return the event, reduced to its identity, the named properties, numbers that may be usage and the chosen tags.

    Source and id are added for the people who look at it in quarantine.
    """
    kept = named_and_numbers({name: value for name, value in event.items() if name != "properties"}, EVENT)
    properties = known_data(event.get("properties"), naming_of(kept.get("code"), namings))
    found = {"source": source, "id": kept.get("transaction_id"), **kept}
    whole = found if properties is None else {**found, "properties": properties}
    chosen = tags_of_data(event.get("properties"), {}, tags) if tags else {}
    return {**whole, "tags": chosen} if chosen else whole


def usage(event: Fields, *, namings: Mapping[str, Naming], now: datetime) -> TokenUsage:
    """Return the usage that a redacted event reports.  Raises RecordError."""
    code = required(event, "code")
    identity = {"id": required(event, "transaction_id"), "source": required(event, "source")}
    consumer = text(event, "external_subscription_id") or text(event, "external_customer_id")
    if consumer is None:
        raise RecordError(Message("external_subscription_id is missing or empty"), "external_subscription_id")
    counted = data_usage(event.get("properties"), naming_of(code, namings))
    known, tags = (*EVENT, "source", "id"), event.get("tags")
    refuse_unread({name: value for name, value in event.items() if name not in ("properties", "tags")}, known=known)
    dated = {"time": _instant(event.get("timestamp")), "consumer": consumer, "tags": tags}
    return usage_of({**identity, **dated, **counted}, now=now)


def _instant(timestamp: object) -> str | None:
    """Return an RFC 3339 instant of seconds since 1970, a number or digits as Lago accepts, or of an RFC 3339 text."""
    if timestamp is None or timestamp == "":
        return None
    if isinstance(timestamp, str) and RFC_3339.match(timestamp):
        return timestamp
    if isinstance(timestamp, str | int | float) and not isinstance(timestamp, bool):
        try:
            return from_epoch(float(timestamp), "timestamp")
        except (ValueError, OverflowError):
            pass
    raise RecordError(Message(
        "timestamp must be seconds since 1970 or an RFC 3339 instant, not %(value)s", value=shown(timestamp)
    ), "timestamp")
