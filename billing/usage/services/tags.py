"""Allow-list of tags: the reported tags that are stored. A tag outside it reaches neither table nor quarantine."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any, Final

import msgspec
from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.tenancy.models import TagRule
from billing.usage.services.outcome import Refusal
from billing.usage.services.token_batch import TokenBatch
from billing.usage.store.tags import values_kept
from metering.names import text_problem
from metering.raw_json import UnreadableJSONError, object_members
from metering.records import GpuAllocation
from metering.request_tags import OWN, reported_name

# the word may be escaped in JSON; a miss would store a tag that no rule allows
_MENTION: Final = re.compile(rb'"(?:t|\\u0074)(?:a|\\u0061)(?:g|\\u0067)(?:s|\\u0073)"', re.IGNORECASE)
Rules = Mapping[str, Sequence[TagRule]]
"""Tag rules by source, or by cluster."""


def tag_rules_put(*, rules: Sequence[TagRule], actor: str) -> list[tuple[bool, str]]:
    """Replace the allow-list by these rules.  Returns (changed, text) for each rule and for each rule removed."""
    with transaction.atomic():
        known = {(row.source, row.cluster, row.key): row for row in TagRule.objects.select_for_update()}
        wanted = {(rule.source, rule.cluster, rule.key): rule for rule in rules}
        done = []
        for name in sorted(known.keys() | wanted.keys()):
            before, after = _facts(known.get(name)), _facts(wanted.get(name))
            source, cluster, key = name
            if before != after:
                TagRule.objects.filter(source=source, cluster=cluster, key=key).delete()
                if after:
                    TagRule.objects.create(source=source, cluster=cluster, key=key, **after)
                audit_record(
                    actor=actor, action="tag_rule_put", subject=f"{source or cluster}/{key}",
                    detail={"before": before, "after": after},
                )  # fmt: skip
            text = f"kept from {after['origin']}" if after else "no longer kept"
            done.append((before != after, f"tag {key} of {source or cluster}: {text}"))
    return done


def _facts(rule: TagRule | None) -> dict[str, Any]:
    return {} if rule is None else {"origin": rule.origin, "longest": rule.longest, "values_a_day": rule.values_a_day}


def source_tag_rules() -> Rules:
    """Return the current allow-list of sources."""
    return _by_place(TagRule.objects.exclude(source=""), "source")


def cluster_tag_rules() -> Rules:
    """Return the current allow-list of clusters."""
    return _by_place(TagRule.objects.exclude(cluster=""), "cluster")


def _by_place(rules: Iterable[TagRule], place: str) -> Rules:
    found: dict[str, list[TagRule]] = {}
    for rule in sorted(rules, key=lambda rule: rule.key):
        found.setdefault(getattr(rule, place), []).append(rule)
    return found


def allocation_tags_filter(records: Sequence[GpuAllocation], rules: Rules) -> list[GpuAllocation]:
    """Return the allocations with allowed tags of their cluster, renamed to the rules' keys, also those read from labels."""
    said = [
        {**{f"tags.{name}": value for name, value in (record.tags or {}).items()},
         **{f"label.{name}": value for name, value in (record.labels or {}).items()}}
        for record in records
    ]  # fmt: skip
    tags = [_kept(one, rules.get(record.cluster, ())) for record, one in zip(records, said, strict=True)]
    limits = {(_counted(rule.cluster), rule.key): rule.values_a_day for own in rules.values() for rule in own}
    named = [(_counted(record.cluster), record.started_at.astimezone(UTC).date()) for record in records]
    values = [
        (*name, key, value) for name, one in zip(named, tags, strict=True) for key, value in one.items() if value is not None
    ]  # fmt: skip
    kept = values_kept([(place, key, day, value) for place, day, key, value in values], limits) if values else set()
    return [
        msgspec.structs.replace(
            record,
            tags={key: value if (name[0], key, name[1], value) in kept else None for key, value in one.items()} or None,
        )
        for record, name, one in zip(records, named, tags, strict=True)
    ]


def _counted(cluster: str) -> str:
    """Return the name under which values of a cluster are counted; sources are counted under their own names."""
    return f"cluster {cluster}"


def batch_tags_filter(batch: TokenBatch, rules: Rules) -> None:
    """Remove tags that no rule allows from a batch and rename the others; once, since a rule may rename a tag."""
    if batch.tags_filtered:
        return
    batch.records = [
        msgspec.structs.replace(record, tags=tags_kept(record.tags, rules.get(record.source, ())) or None)
        if record.tags else record
        for record in batch.records
    ]  # fmt: skip
    batch.columns, batch.tags_filtered = None, True


def tags_kept(tags: Mapping[str, Any], rules: Sequence[TagRule]) -> dict[str, str | None]:
    """Return the tags that rules name; None replaces a value that is too long, no text, or not printable on one line."""
    return _kept({f"tags.{name}": value for name, value in tags.items()}, rules)


def _kept(said: Mapping[str, Any], rules: Sequence[TagRule]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for rule in rules:
        value = said.get(rule.origin if rule.origin.startswith("label.") else f"{OWN}{reported_name(rule)}")
        if value is not None:
            good = isinstance(value, str) and 0 < len(value) <= rule.longest and text_problem(value) is None
            found[rule.key] = value if good else None
    return found


def tags_removed(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Return the refusals without tags that no rule allows; the allow-list is read only if a record mentions tags."""
    kept = list(refusals)
    if not any(_MENTION.search(refusal.raw) for refusal in kept):
        return kept
    rules = {**cluster_tag_rules(), **source_tag_rules()}
    return [replace(refusal, raw=without_tags(refusal.raw, rules)) for refusal in kept]


def without_tags(raw: bytes, rules: Rules) -> bytes:
    """Return a refused record for quarantine: with the allowed tags of its source, under the names in the report.

    If the bytes are no JSON object with readable members, everything from the first mention of tags on is cut.
    """
    mention = _MENTION.search(raw)
    if mention is None:
        return raw
    try:
        members = object_members(raw)
    except (UnreadableJSONError, RecursionError, UnicodeError):
        return raw[: mention.start()] + b"..."
    if not any(name == "tags" for name, _ in members):
        return raw
    source = next((value for name, value in members if name in ("source", "cluster")), b"")
    try:
        allowed = rules.get(msgspec.json.decode(source, type=str), ())
    except (msgspec.DecodeError, UnicodeError):
        allowed = ()
    kept = []
    for name, value in members:
        if name == "tags":
            value = _tags_as_they_came(value, allowed)
            if not value:
                continue
        kept.append(msgspec.json.encode(name) + b": " + value)
    return b"{" + b", ".join(kept) + b"}"


def _tags_as_they_came(value: bytes, rules: Sequence[TagRule]) -> bytes:
    try:
        tags = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return b""
    rules = [rule for rule in rules if not rule.origin.startswith("label.")]
    found = {reported_name(rule): tags_kept(tags, [rule]).get(rule.key) for rule in rules}
    kept = {name: text for name, text in found.items() if text is not None}
    return msgspec.json.encode(kept) if kept else b""
