"""Addresses that only take a form, opened as a page: after a sign-in that came between, from a bookmark, by going back."""

from collections.abc import Callable
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


class FormAddressesMiddleware:
    """Says in a page that nothing was saved, where Django answers with nothing at all."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED or request.method != "GET" or response.content:
            return response
        page = render(request, "405.html", status=HTTPStatus.METHOD_NOT_ALLOWED)
        page.headers["Allow"] = response.headers["Allow"]
        return page
