"""Queries of the audit page: filtered entries, their reasons and changed values, and their links in the chain."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.http import QueryDict

from billing.tenancy.models import AuditEntry
from metering.intervals import midnight_of

WHY = ("reason", "comment", "decision", "resolution", "why")
"""Names under which services store the reason of a change."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Filters of the audit log; `about` are names of objects, any of which may match. `wrong`: invalid dates."""

    who: str = ""
    kind: str = ""
    about: Sequence[str] = ()
    since: date | None = None
    until: date | None = None
    wrong: list[str] = field(default_factory=list)


def asked_in(query: QueryDict) -> Asked:
    """Parse the filters of an address; an invalid date is named in `wrong`, not guessed."""
    wrong: list[str] = []
    days: dict[str, date | None] = {}
    for name in ("since", "until"):
        text = query.get(name, "").strip()
        try:
            days[name] = date.fromisoformat(text) if text else None
        except ValueError:
            days[name] = None
            wrong.append(f"{name}: {text!r}")
    about = tuple(text.strip() for text in query.getlist("about") if text.strip())
    return Asked(query.get("who", "").strip(), query.get("kind", "").strip(), about, **days, wrong=wrong)


def entries(asked: Asked, zone: str) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first; days are local, both ends included."""
    found = AuditEntry.objects.select_related("link").order_by("-id")
    if asked.who:
        found = found.filter(actor__icontains=asked.who)
    if asked.kind:
        found = found.filter(action=asked.kind)
    if asked.about:
        meant = Q()
        for text in asked.about:
            meant |= Q(subject__icontains=text)
        found = found.filter(meant)
    if asked.since:
        found = found.filter(at__gte=midnight_of(asked.since, zone))
    if asked.until:
        found = found.filter(at__lt=midnight_of(asked.until + timedelta(days=1), zone))
    return found


def kinds() -> list[str]:
    """Return the actions that occur in the log."""
    return list(AuditEntry.objects.order_by("action").values_list("action", flat=True).distinct())


def why_of(entry: AuditEntry) -> str:
    """Return the reason of an entry; empty if it has none."""
    return next((str(entry.detail[name]) for name in WHY if entry.detail.get(name)), "")


def facts_of(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """Return (name, before, after) of the changed values; a value without before and after is under `after`."""
    detail = dict(entry.detail)
    before, after = (detail.pop(name, None) for name in ("before", "after"))
    acting = detail.pop("acting", None) or {}
    rows = []
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, after))
        rows = [(name, _plain(old.get(name)), _plain(new.get(name))) for name in [*new, *(n for n in old if n not in new)]]
        rows = [row for row in rows if row[1] != row[2]]
    elif before is not None or after is not None:
        rows = [("", _plain(before), _plain(after))]
    detail = {name: value for name, value in detail.items() if name not in WHY} | acting
    return rows + [(name, "", _plain(value)) for name, value in detail.items()]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
