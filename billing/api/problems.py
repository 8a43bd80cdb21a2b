"""Errors as `application/problem+json` (RFC 9457)."""

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from billing.usage.archive.places import UnreadableArchiveError
from metering.messages import UserError

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 2
logger = logging.getLogger(__name__)


class Refused(exceptions.APIException):
    """Error 409: a service refuses the request; nothing has changed."""

    status_code = status.HTTP_409_CONFLICT
    default_detail = "Conflict"


def problem(status_code: int, title: str, detail: str, **extra: object) -> JsonResponse:
    """Build one error as a response, for views outside the REST framework."""
    return JsonResponse(
        {"type": "about:blank", "title": title, "status": status_code, "detail": detail, **extra},
        status=status_code,
        content_type=PROBLEM_JSON,
    )


def forget_frames(error: BaseException | None) -> None:
    """Clear the frames behind a handled error: they would keep a refused body until garbage collection."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def api_problem(error: exceptions.APIException) -> JsonResponse:
    """Build the answer to an error of the REST framework, for endpoints outside of it."""
    forget_frames(error)
    answer = problem(error.status_code, _title(error, error.status_code), str(error.detail))
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        answer.headers["WWW-Authenticate"] = "Bearer"
        answer.status_code = status.HTTP_401_UNAUTHORIZED
    wait = getattr(error, "wait", None)
    if wait:
        answer.headers["Retry-After"] = str(int(wait))
    return answer


def passes(error: Exception) -> bool:
    """Return True if the same request may succeed later: the database is away, or a `migrate` is still to run."""
    missing = UndefinedTable | UndefinedColumn | UndefinedFunction
    # Django wraps psycopg's error, whose class tells what is missing
    return isinstance(error, OperationalError | InterfaceError) or isinstance(error.__cause__, missing)


def unavailable(error: DatabaseError | InterfaceError) -> JsonResponse:
    """Build the 503 for a database that is away, full, stopping, not migrated or too slow; the cause is logged.

    Raises `error` if it is a programming error.
    """
    if not passes(error):
        raise error
    logger.warning("database: %s", error)
    answer = problem(
        status.HTTP_503_SERVICE_UNAVAILABLE, "Service Unavailable",
        "the database does not answer: nothing is acknowledged, send the same report again",
    )  # fmt: skip
    answer.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def problem_response(error: Exception, context: dict[str, Any]) -> Response | JsonResponse | None:
    """Convert an error to a problem; REST framework's exception hook; None for a programming error.

    A refusal by a service is a 409, unless the endpoint gives it another status.
    """
    if isinstance(error, DatabaseError | InterfaceError) and passes(error):
        return unavailable(error)
    if isinstance(error, UnreadableArchiveError):
        forget_frames(error)
        logger.warning("archive: %s", error)
        return problem(status.HTTP_503_SERVICE_UNAVAILABLE, "Service Unavailable", str(error), code=error.code)
    if isinstance(error, UserError):
        error = Refused(str(error))
    response = exception_handler(error, context)
    if response is None:
        return None
    forget_frames(error)
    extra: dict[str, object] = {}
    if isinstance(error, exceptions.ValidationError):
        detail, extra["errors"] = "the request is not valid", response.data
    elif isinstance(error, Http404):
        detail = "there is nothing here that you may see"
    else:
        detail = str(getattr(error, "detail", error))
    answer = problem(response.status_code, _title(error, response.status_code), detail, **extra)
    for name in ("WWW-Authenticate", "Retry-After", "Allow"):
        if name in response.headers:
            answer.headers[name] = response.headers[name]
    return answer


def _title(error: Exception, status_code: int) -> str:
    """Return the title of a kind of error, the same for every occurrence: never a text with an unfilled placeholder."""
    text = str(getattr(error, "default_detail", "Error"))
    unfilled = status_code == status.HTTP_404_NOT_FOUND or "{" in text
    return HTTPStatus(status_code).phrase if unfilled else text.rstrip(".")


def read_only(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Wrap a view for GET and HEAD; any other method is a 405 of the same shape as those of endpoints."""

    @csrf_exempt
    @wraps(view)
    def answered(request: HttpRequest) -> HttpResponse:
        if request.method in ("GET", "HEAD"):
            return view(request)
        refused = api_problem(exceptions.MethodNotAllowed(str(request.method)))
        refused.headers["Allow"] = "GET, HEAD"
        return refused

    return answered


@csrf_exempt
def not_found(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """Answer 404 below /api/."""
    return problem(status.HTTP_404_NOT_FOUND, "Not Found", f"no endpoint at {request.path}")
