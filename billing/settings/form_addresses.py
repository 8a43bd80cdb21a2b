"""Addresses that only take a form, opened as a page: after a sign-in that came between, from a bookmark, by going back."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin


class FormAddressesMiddleware(MiddlewareMixin):
    """Says in a page that nothing was saved, where Django answers with nothing at all."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED or request.method != "GET" or response.content:
            return response
        page = render(request, "405.html", status=HTTPStatus.METHOD_NOT_ALLOWED)
        page.headers["Allow"] = response.headers["Allow"]
        return page
