"""Capacity types of allocations: by the rules of the set-up file, else as stated by the node."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.models import CapacityTypeRule
from metering.intervals import Interval

STATED: Final = "stated"
"""Value of a rule that restores the type stated by the node."""


def _like(pattern: str) -> str:
    """Return SQL that turns a pattern of `*` and `?` into a LIKE pattern."""
    for found, written in (("\\", "\\\\"), ("%%", "\\%%"), ("_", "\\_"), ("*", "%%"), ("?", "_")):
        pattern = f"replace({pattern}, '{found}', '{written}')"
    return pattern


def _fits(rule: str, value: str) -> str:
    return f"({rule} = '' OR coalesce({value}, '') LIKE {_like(rule)})"


def _fits_named(rule: str, facts: str) -> str:
    """Return the SQL condition that the value of a name fits a rule `NAME=PATTERN`."""
    name, pattern = f"split_part({rule}, '=', 1)", _like(f"substr({rule}, strpos({rule}, '=') + 1)")
    return f"({rule} = '' OR {facts} ->> {name} LIKE {pattern})"


def capacity_type_sql(at: str) -> str:
    """Return SQL of the capacity type of allocation `a` at the instant `at` (SQL); "" if no rule and no node states one.

    Among fitting rules the one of highest priority wins, then the one with the most conditions.
    """
    count = " + ".join(f"(r.{name} <> '')::int" for name in ("namespace", "priority_class", "queue", "label", "tag"))
    same = " AND ".join(
        f"n.{name} = r.{name}" for name in ("cluster", "namespace", "priority_class", "queue", "label", "tag")
    )
    return f"""coalesce(nullif((
        SELECT r.capacity_type FROM usage_capacitytyperule r
        WHERE r.cluster = a.cluster AND r.valid_from <= {at} AND {_fits("r.namespace", "a.namespace")}
          AND {_fits("r.queue", "a.queue")} AND {_fits("r.priority_class", "a.facts ->> 'priority_class'")}
          AND {_fits_named("r.label", "(a.facts -> 'labels')")} AND {_fits_named("r.tag", "(a.facts -> 'tags')")}
          AND NOT EXISTS (SELECT FROM usage_capacitytyperule n
                          WHERE {same} AND n.valid_from <= {at} AND n.valid_from > r.valid_from)
        ORDER BY r.priority DESC, {count} DESC, r.id LIMIT 1), '{STATED}'), a.facts ->> 'capacity_type', '')"""


def capacity_types_of(held: Mapping[int, datetime]) -> dict[int, str]:
    """Return capacity types by allocation id, each at its instant in `held`; allocations without a type are left out."""
    rows = rows_read(
        f"""SELECT a.id, {capacity_type_sql("h.at")}
            FROM unnest(%(ids)s::bigint[], %(instants)s::timestamptz[]) AS h (id, at)
            JOIN usage_gpuallocation a ON a.id = h.id""",
        {"ids": list(held), "instants": list(held.values())},
    )
    return {row_id: found for row_id, found in rows if found}


def capacity_type_changes(window: Interval) -> frozenset[datetime]:
    """Return instants within a window at which rules change; a sum by capacity type must be cut there."""
    rows = CapacityTypeRule.objects.filter(valid_from__gt=window.start, valid_from__lt=window.end)
    return frozenset(rows.values_list("valid_from", flat=True))
