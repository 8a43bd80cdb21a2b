"""The section `interruption_policies` of the set-up file: who pays for holds that somebody else ended.

    interruption_policies:
      - {name: sla-v1, valid_from: 2026-10-01, preempted: platform, node_lost: {cap_hours: "1"}}

A reason is `team`, `platform`, or at most so many of the last hours of the hold; what is not named is the team's.
"""

from typing import Final

from billing.rates.models import InterruptionPolicy
from billing.rates.services import rules_publish
from billing.setup.file import Entry

REASONS: Final = {
    "preempted": "preempted", "reclaimed": "reclaimed", "evicted": "evicted", "node_lost": "node lost",
}  # fmt: skip
"""Field of the file, and the end reason of the contract."""


def interruption_policy_store(entry: Entry, zone: str, actor: str) -> tuple[bool, str]:
    """Publish one entry; whether that changed anything, and in words what.  Raises SetUpFileError, RateError."""
    name, valid_from = entry.text("name"), entry.instant("valid_from", zone)
    rules = {reason: _rule(entry, field) for field, reason in REASONS.items() if entry.value(field) is not None}
    if not rules:
        raise entry.error("name", f"policy {name} says nothing: give one of {', '.join(REASONS)}")
    entry.finish()
    changed = rules_publish(InterruptionPolicy, name=name, valid_from=valid_from, rules=rules, actor=actor)
    return changed, f"interruption policy {name} from {valid_from.isoformat()}"


def _rule(entry: Entry, field: str) -> dict[str, str]:
    given = entry.value(field)
    if given in ("team", "platform"):
        return {"payer": str(given)}
    if not isinstance(given, dict):
        raise entry.error(field, f"{given!r} must be team, platform or {{cap_hours: 1}}")
    part = Entry(given, f"{entry.where}.{field}", entry.path)
    hours = part.decimal("cap_hours", places=6, at_least="0.000001", at_most="8784")
    part.finish()
    return {"payer": "cap", "hours": format(hours.normalize(), "f")}
