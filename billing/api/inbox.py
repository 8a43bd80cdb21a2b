"""Endpoint of the inbox: items that wait for a person, with the amount at stake and a link to act."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import Endpoint
from billing.inbox.reader import Item
from billing.inbox.selectors import inbox_of, months_checked_at
from billing.tenancy.actors import Actor, actor_of
from pricing.number_text import amount_text

ANSWER = {
    "type": "object",
    "required": ["waiting", "kinds"],
    "properties": {
        "waiting": {"type": "integer"}, "as_of": {"type": "string", "format": "date-time", "nullable": True},
        "kinds": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip


class Inbox(Endpoint):
    """Inbox of the signed-in person, or of the owner of the token."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(
        operation_id="inbox",
        description=(
            "What waits for the person who is signed in, or for the owner of the token; a token of a team sees that team's"
            " items only, a token without owner sees none. Kinds and items with the most money at stake come first; amounts"
            " and quantities are exact decimal strings. `as_of`: when open months were last checked."
        ),
        responses={200: OpenApiResponse(ANSWER)},
    )
    def get(self, request: Request) -> Response:
        actor = actor_of(request)
        if actor.account is None:
            return Response({"waiting": 0, "as_of": None, "kinds": []})
        found, teams, checked = inbox_of(actor.account, timezone.now()), _confined_to(actor), months_checked_at()
        kinds = []
        for group in found.groups:
            items = [_item(item) for item in group.items if teams is None or item.team in teams]
            if items:
                kinds.append({"kind": group.kind.name, "items": items})
        waiting = sum(len(kind["items"]) for kind in kinds)
        return Response({"waiting": waiting, "as_of": checked and checked.isoformat(), "kinds": kinds})


def _confined_to(actor: Actor) -> set[str] | None:
    """Return the teams of a token; None if it has no limit, and for people, whose inbox is limited already."""
    teams = actor.teams() if actor.token is not None else None
    return None if teams is None else set(teams.values_list("code", flat=True))


def _item(item: Item) -> dict[str, Any]:
    return {
        "title": str(item.title), "team": item.team or None,
        "amount": None if item.amount is None else amount_text(item.amount),
        "quantity": None if item.quantity is None else format(item.quantity, "f"), "unit": item.unit or None,
        "since": item.since and item.since.isoformat(), "link": item.link, "words": str(item.words),
    }  # fmt: skip
