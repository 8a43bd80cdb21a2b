"""Endpoints of SCIM 2.0 below /api/v1/scim/v2/, for tokens with the scope `people:provision`, not for people."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth.models import Group
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.authentication import has_scope
from billing.api.bodies import ExactJsonParser
from billing.api.problems import problem_response
from billing.api.scim.documents import (
    MESSAGES,
    ScimError,
    filter_of,
    group_change_of,
    group_document,
    group_name,
    member_ids,
    operations_of,
    person_of,
    person_of_operations,
    user_document,
)
from billing.tenancy.actors import Actor, actor_of
from billing.tenancy.models import ProvisionedAccount
from billing.tenancy.people import PeopleError
from billing.tenancy.provisioning import (
    TakenError,
    account_change,
    account_deprovision,
    account_provision,
    accounts_provisioned,
    group_delete,
    group_put,
)

MOST: Final = 200
USER_FILTERS: Final = {"username": "user_name__iexact", "externalid": "external_id", "id": "user_id"}
GROUP_FILTERS: Final = {"displayname": "name__iexact", "id": "pk"}


class ScimParser(ExactJsonParser):
    """Parser of JSON under SCIM's media type."""

    media_type = "application/scim+json"


class ScimRenderer(JSONRenderer):
    """Renderer of JSON under SCIM's media type."""

    media_type = "application/scim+json"


def scim_error(error: Exception, context: dict[str, Any]) -> Any:
    """Convert an error to the form of RFC 7644 section 3.12; None for a programming error."""
    kind, status = "", 0
    if isinstance(error, ScimError):
        kind, status = error.kind, 400
    elif isinstance(error, TakenError | IntegrityError):  # a concurrent request was faster
        kind, status = "uniqueness", 409
    elif isinstance(error, PeopleError):
        kind, status = "invalidValue", 400
    elif isinstance(error, ObjectDoesNotExist | Http404):
        status, error = 404, Exception("there is no such resource")
    elif isinstance(error, exceptions.APIException):
        status = error.status_code
    else:
        return problem_response(error, context)
    headers = {"WWW-Authenticate": "Bearer"} if status == exceptions.NotAuthenticated.status_code else {}
    body = {"schemas": [f"{MESSAGES}:Error"], "status": str(status), "detail": str(error)}
    return Response({**body, "scimType": kind} if kind else body, status=status, headers=headers)


@extend_schema(exclude=True)
class ScimView(APIView):
    """Base of all endpoints of SCIM."""

    permission_classes = [has_scope("people:provision")]
    parser_classes = [ScimParser, ExactJsonParser]
    renderer_classes = [ScimRenderer, JSONRenderer]

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Any]:
        return scim_error

    @property
    def root(self) -> str:
        """Return the address of the interface, as the provider knows it."""
        return self.request.build_absolute_uri("/api/v1/scim/v2")

    @property
    def actor(self) -> Actor:
        """Return the token, and its owner."""
        return actor_of(self.request)


def whole(request: Request) -> dict[str, Any]:
    """Return the body, which is one object.  Raises ScimError."""
    if not isinstance(request.data, dict):
        raise ScimError("invalidSyntax", "the body must be an object")
    return request.data


def listed(request: Request, rows: QuerySet[Any], shown: Callable[[Any], dict[str, Any]]) -> Response:
    """Return one page of rows, counted from startIndex 1.  Raises ScimError."""
    numbers = [request.query_params.get(name, default) for name, default in (("startIndex", "1"), ("count", "100"))]
    if not all(number.removeprefix("-").isdecimal() and len(number) < 10 for number in numbers):
        raise ScimError("invalidValue", "startIndex and count are whole numbers")
    start, count = max(int(numbers[0]), 1), min(max(int(numbers[1]), 0), MOST)
    page = [shown(row) for row in rows[start - 1 : start - 1 + count]]
    return Response({
        "schemas": [f"{MESSAGES}:ListResponse"], "totalResults": rows.count(), "startIndex": start,
        "itemsPerPage": len(page), "Resources": page,
    })  # fmt: skip


def chosen(request: Request, rows: QuerySet[Any], known: dict[str, str]) -> QuerySet[Any]:
    """Return the rows that match the filter of a request.  Raises ScimError."""
    lookup = filter_of(request.query_params.get("filter", ""), known)
    number = lookup.get("pk") or lookup.get("user_id")
    return rows.none() if number and not number.isdecimal() else rows.filter(**lookup)


class UserView(ScimView):
    """Base of the endpoints of provisioned accounts."""

    def shown(self, account: ProvisionedAccount) -> dict[str, Any]:
        return user_document(account, self.root)


class Users(UserView):
    """List of accounts."""

    def get(self, request: Request) -> Response:
        rows = chosen(request, accounts_provisioned().prefetch_related("user__groups"), USER_FILTERS)
        return listed(request, rows, self.shown)

    def post(self, request: Request) -> Response:
        return Response(self.shown(account_provision(person=person_of(whole(request)), actor=self.actor)), status=201)


class OneUser(UserView):
    """One account."""

    def get(self, request: Request, pk: int) -> Response:
        return Response(self.shown(accounts_provisioned().get(user_id=pk)))

    def put(self, request: Request, pk: int) -> Response:
        return Response(self.shown(account_change(user_id=pk, person=person_of(whole(request)), actor=self.actor)))

    def patch(self, request: Request, pk: int) -> Response:
        person = person_of_operations(operations_of(request.data))
        return Response(self.shown(account_change(user_id=pk, person=person, actor=self.actor)))

    def delete(self, request: Request, pk: int) -> Response:
        account_deprovision(user_id=pk, actor=self.actor)
        return Response(status=204)


class GroupView(ScimView):
    """Base of the endpoints of groups, which give roles."""

    def shown(self, group: Group) -> dict[str, Any]:
        left_out = self.request.query_params.get("excludedAttributes", "").lower()
        return group_document(group, self.root, members="members" not in left_out)

    def said(self, request: Request) -> dict[str, Any]:
        """Return name and members of a whole group.  Raises ScimError."""
        body = whole(request)
        return {"name": group_name(body.get("displayName")), "members": member_ids(body.get("members") or [])}


class Groups(GroupView):
    """List of groups."""

    def get(self, request: Request) -> Response:
        return listed(request, chosen(request, Group.objects.order_by("pk"), GROUP_FILTERS), self.shown)

    def post(self, request: Request) -> Response:
        return Response(self.shown(group_put(actor=self.actor, **self.said(request))), status=201)


class OneGroup(GroupView):
    """One group."""

    def get(self, request: Request, pk: int) -> Response:
        return Response(self.shown(Group.objects.get(pk=pk)))

    def put(self, request: Request, pk: int) -> Response:
        return Response(self.shown(group_put(group_id=pk, actor=self.actor, **self.said(request))))

    def patch(self, request: Request, pk: int) -> Response:
        # RFC 7644, 3.5.2: the operations of a PATCH succeed or fail together
        with transaction.atomic():
            for operation in operations_of(request.data):
                group_put(group_id=pk, actor=self.actor, **group_change_of(*operation))
        return Response(self.shown(Group.objects.get(pk=pk)))

    def delete(self, request: Request, pk: int) -> Response:
        group_delete(group_id=pk, actor=self.actor)
        return Response(status=204)


class Discovery(ScimView):
    """Capabilities of the interface, the same for every client."""

    document: dict[str, Any] = {}

    def get(self, request: Request) -> Response:
        return Response(self.document)


class Listed(Discovery):
    """Resource types or schemas: all, or the one with the requested id."""

    def get(self, request: Request, name: str = "") -> Response:
        documents = self.document["Resources"]
        if not name:
            return Response(self.document)
        found = [document for document in documents if document["id"] == name]
        if not found:
            raise Http404
        return Response(found[0])
