"""Dated rules that decide the capacity type of allocations, whatever their nodes state."""

from collections.abc import Mapping
from datetime import datetime

from billing.tenancy.audit import audit_record
from billing.tenancy.services import SetupError
from billing.usage.models import CapacityTypeRule
from billing.usage.queries import FOREVER
from metering.messages import Message

CONDITIONS = ("namespace", "priority_class", "queue", "label", "tag")
"""Pattern fields of a rule; those of labels and tags are `NAME=PATTERN`."""


def capacity_type_rule_put(
    *, cluster: str, conditions: Mapping[str, str], capacity_type: str, priority: int, valid_from: datetime, actor: str
) -> bool:
    """Store the capacity type of allocations meeting all conditions from `valid_from` on.  Returns True if the rule is new.

    A rule replaces an earlier one with the same conditions. Among fitting rules the one of the highest priority applies, and
    among these one that has all conditions of another and more.  Raises SetupError if another rule begins at that instant,
    or if two rules could give one allocation different types.
    """
    facts = {name: conditions.get(name, "") for name in CONDITIONS}
    rules = list(CapacityTypeRule.objects.filter(cluster=cluster).order_by("valid_from"))
    new = CapacityTypeRule(
        cluster=cluster, **facts, capacity_type=capacity_type, priority=priority, valid_from=valid_from
    )
    for row in rules:
        if row.conditions == new.conditions and row.valid_from == valid_from:
            if (row.capacity_type, row.priority) != (capacity_type, priority):
                raise SetupError(Message(
                    "capacity type of %(rule)s is %(known)s from %(at)s on: begin another rule later",
                    rule=row.subject, known=row.capacity_type, at=valid_from.isoformat(),
                ))
            return False
    for row in rules:
        if _contradict(row, new, [*rules, new]):
            raise SetupError(Message(
                "capacity types of %(rule)s (%(one)s) and %(new)s (%(other)s) may be of one allocation: give one a priority",
                one=row.capacity_type, rule=row.subject, other=capacity_type, new=new.subject,
            ))
    new.save()
    audit_record(
        actor=actor, action="capacity_type_rule_put", subject=new.subject,
        detail={"capacity_type": capacity_type, "priority": priority, "valid_from": valid_from.isoformat()},
    )  # fmt: skip
    return True


def _contradict(one: CapacityTypeRule, other: CapacityTypeRule, rules: list[CapacityTypeRule]) -> bool:
    """Return True if two rules without precedence may give one allocation two types at some time."""
    if one.conditions == other.conditions or one.priority != other.priority or one.capacity_type == other.capacity_type:
        return False
    if one.conditions.items() <= other.conditions.items() or other.conditions.items() <= one.conditions.items():
        return False
    first, second = (_until(rule, rules) for rule in (one, other))
    if one.valid_from >= second or other.valid_from >= first:
        return False
    both = one.conditions.keys() & other.conditions.keys()
    return all(_meet(name, one.conditions[name], other.conditions[name]) for name in both)


def _until(rule: CapacityTypeRule, rules: list[CapacityTypeRule]) -> datetime:
    """Return the start of the next rule with the same conditions, or FOREVER."""
    later = [row.valid_from for row in rules if row.conditions == rule.conditions and row.valid_from > rule.valid_from]
    return min(later, default=FOREVER)


def _meet(field: str, one: str, other: str) -> bool:
    if field in ("label", "tag"):
        (name, _, one), (another, _, other) = one.partition("="), other.partition("=")
        return name != another or patterns_meet(one, other)
    return patterns_meet(one, other)


def patterns_meet(one: str, other: str) -> bool:
    """Return True if some text matches both patterns, in which `*` is any text and `?` any character.

    >>> patterns_meet("spot-*", "*-a"), patterns_meet("spot-*", "prod-*"), patterns_meet("a?", "a")
    (True, False, False)
    """
    # each pair of positions is visited once: many `*` do not backtrack exponentially
    waiting, seen = [(0, 0)], {(0, 0)}
    while waiting:
        first, second = waiting.pop()
        here, there = one[first : first + 1], other[second : second + 1]
        if not here and not there:
            return True
        found = set()
        if here == "*":
            found |= {(first + 1, second), *([(first, second + 1)] if there else [])}
        if there == "*":
            found |= {(first, second + 1), *([(first + 1, second)] if here else [])}
        if here and there and "*" not in (here, there) and (here == there or "?" in (here, there)):
            found.add((first + 1, second + 1))
        waiting += found - seen
        seen |= found
    return False
