"""Page for addresses that accept only POST, opened with GET: after a sign-in in between, by bookmark or back button."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin


class FormAddressesMiddleware(MiddlewareMixin):
    """Middleware that renders a page saying that nothing was saved, where Django's 405 has no content."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED or request.method != "GET" or response.content:
            return response
        page = render(request, "405.html", status=HTTPStatus.METHOD_NOT_ALLOWED)
        page.headers["Allow"] = response.headers["Allow"]
        return page
