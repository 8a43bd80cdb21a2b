"""Audit log entries of downloads: every response that is sent as an attachment."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from billing.tenancy.actors import actor_of
from billing.tenancy.audit import export_record

MOST_QUERY = 300


class ExportsAuditedMiddleware(MiddlewareMixin):
    """Middleware that records actor, path and size of a download; a response whose entry fails is not sent."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        is_file = response.headers.get("Content-Disposition", "").startswith("attachment")
        if is_file and response.status_code == HTTPStatus.OK and request.method != "HEAD":
            query = {"query": request.META["QUERY_STRING"][:MOST_QUERY]} if request.META.get("QUERY_STRING") else {}
            size = {} if response.streaming else {"bytes": len(response.content)}
            export_record(actor=actor_of(request), what=request.path, detail={**query, **size})
        return response
