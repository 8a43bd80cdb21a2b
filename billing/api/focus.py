"""Endpoint of FOCUS: the month's issued documents as rows of FOCUS 1.4, page by page."""

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.admission import Busy
from billing.api.authentication import has_scope
from billing.api.pagination import PageNumber
from billing.api.parameters import Endpoint
from billing.api.schema import PROBLEM
from billing.closing.services.operations import operation_request
from billing.closing.tasks import operation_wake
from billing.exports.services.focus import DATA_SETS
from billing.exports.services.focus_rows import KIND, FocusNotReadyError, focus_rows
from billing.invoices.issued import NoPeriodError
from billing.tenancy.actors import actor_of
from billing.tenancy.audit import export_record

DEFAULT = "cost-and-usage"
MADE_IN_SECONDS = 30
"""Seconds after which to ask again: a worker makes some 15,000 rows a second."""
PARAMETERS = [
    OpenApiParameter("data_set", str, enum=list(DATA_SETS), default=DEFAULT, description="which data set of FOCUS 1.4"),
    OpenApiParameter("page", int),
    OpenApiParameter("page_size", int, description="rows of a page, up to 1,000 (100)"),
]


class FocusEndpoint(Endpoint):
    """Data set of FOCUS 1.4, as `export_focus` writes it; it shows every team."""

    parameters = PARAMETERS
    permission_classes = [has_scope("invoices:read")]

    @extend_schema(
        operation_id="focus_list",
        responses={
            200: OpenApiTypes.OBJECT, 409: OpenApiResponse(PROBLEM, "the month's documents are not all issued"),
            503: OpenApiResponse(PROBLEM, "the rows of a large month are being made; Retry-After says when to ask again"),
        },
    )  # fmt: skip
    def get(self, request: Request, month: str) -> HttpResponse | Response:
        """Return rows of the data set with the columns of FOCUS: amounts and quantities are decimal strings."""
        if actor_of(request).teams() is not None:
            raise Http404
        chosen: Any = request.query_params.get("data_set", DEFAULT)
        try:
            rows: Any = focus_rows(month=month, data_set=chosen, now=timezone.now(), request=_asking(request, month))
        except NoPeriodError:
            raise Http404 from None
        except FocusNotReadyError as error:
            raise Busy(str(error), wait=MADE_IN_SECONDS) from None
        pages = PageNumber()
        shown = pages.paginate_queryset(rows, request, view=self) or []
        if pages.page is None or pages.page.number == 1:  # once for all pages of one reading
            export_record(actor=actor_of(request), what=f"focus {month}", detail={"data_set": chosen})
        return pages.get_paginated_response(shown)


def _asking(request: Request, month: str) -> Callable[[str], None]:
    def ask(documents: str) -> None:
        actor, parameters = actor_of(request), {"documents": documents}
        operation_request(kind=KIND, month=month, actor=actor, wake=operation_wake, parameters=parameters)

    return ask
