"""The query of every endpoint that reads: what it does not know, know twice or cannot use is a 400 that names it.

A filter that was mistyped or left empty and then ignored would give the figures of everybody for those of one team.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern

from billing.api import urls
from billing.api.budgets import BudgetAuthorizeEndpoint, BudgetCheckEndpoint
from billing.api.parameters import Endpoint
from billing.api.schema import Description
from tests.factories import apply
from tests.factories.api import problem, program

pytestmark = pytest.mark.django_db
VALUES = {"pk": "1", "month": "2026-10", "name": "2026-10", "step": "submit", "code": "nlp"}
Get = Callable[[str, str], str]


def reading() -> dict[str, Any]:
    """The view of each address that reads."""
    views = {str(item.pattern): item.callback.cls for item in urls.urlpatterns if hasattr(item.callback, "cls")}
    assert all(isinstance(item, URLPattern) for item in urls.urlpatterns if str(item.pattern) in views)
    return {route: view for route, view in views.items() if hasattr(view, "get")}


ENDPOINTS = {route: view for route, view in reading().items() if issubclass(view, Endpoint)}
LISTS = [route for route, view in ENDPOINTS.items() if getattr(view, "pagination_class", None)]


def address(route: str) -> str:
    route = re.sub(r"\(\?P<number>.*\)\??\$", "AI-INFRA-2026-000001", route.removeprefix("^"))
    return "/api/v1/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found: VALUES[found[1]], route)


@pytest.fixture(scope="module")
def refused(for_all_tests: Path) -> Get:
    """What is wrong with the query of an address, for somebody who may read everything."""
    apply(for_all_tests)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    def asked(route: str, query: str) -> str:
        return str(problem(client.get(f"{address(route)}?{query}"), 400)["detail"])

    return asked


def test_every_endpoint_that_reads_checks_its_query() -> None:
    assert len(ENDPOINTS) > 25
    others = {Description, BudgetCheckEndpoint, BudgetAuthorizeEndpoint}
    assert {view for view in reading().values() if not issubclass(view, Endpoint)} == others


def test_who_may_not_read_learns_nothing_of_the_parameters() -> None:
    problem(Client().get("/api/v1/invoices?tem=nlp"), 401)
    problem(program("usage:write").get("/api/v1/invoices?tem=nlp"), 403)


@pytest.mark.parametrize("route", ENDPOINTS)
def test_a_parameter_that_is_none_is_refused_by_name(refused: Get, route: str) -> None:
    for name in ("tem", "Team", "team[]", "page-size", "as", "cursor", "ordering", "limit", "offset", "utm_source"):
        assert f"{name!r}: this endpoint has no such parameter" in refused(route, f"{name}=nlp")
    assert "only month, page, page_size, team" in refused("invoices", "namespace=nlp")


@pytest.mark.parametrize("route", [route for route, view in ENDPOINTS.items() if view.parameters])
def test_a_parameter_is_given_once_and_with_a_value_that_can_be_meant(refused: Get, route: str) -> None:
    for known in ENDPOINTS[route].parameters:
        good = known.enum[0] if known.enum else "x"
        assert refused(route, f"{known.name}=") == f"{known.name} '' is empty: leave it out, or say which"
        assert refused(route, f"{known.name}=%20") == f"{known.name} ' ' is empty: leave it out, or say which"
        assert refused(route, f"{known.name}=a%00b") == f"{known.name} 'a\\x00b' contains a NUL character"
        if not known.many:
            twice = refused(route, f"{known.name}={good}&{known.name}=y")
            assert twice == f"{known.name} is given 2 times: {good!r}, 'y'"
        if known.enum:
            assert refused(route, f"{known.name}=maybe") == f"{known.name} 'maybe': one of {', '.join(known.enum)}"


@pytest.mark.parametrize("route", LISTS)
def test_a_page_has_the_size_that_was_asked_for_or_none(refused: Get, route: str) -> None:
    for size in ("", "abc", "0", "-1", "1e3", "1.0", "%2B5", "٣", "9" * 40, "true", "5%00", "5&page_size=6"):
        assert refused(route, f"page_size={size}").startswith("page_size ")


def test_the_days_of_the_explorer_are_said_once(refused: Get) -> None:
    said = "give one of range, month, or from and to"
    assert refused("explore", "month=2026-10&range=this-month") == f"range, month: {said}"
    assert refused("explore", "month=2026-10&from=2026-01-01&to=2026-01-02") == f"month, from and to: {said}"
    assert refused("explore", "month=2026-13") == "month '2026-13' must be written like 2026-10, from 2000 to 2199"


def test_the_largest_page_is_answered(refused: Get) -> None:
    for size in (1000, 1001):  # what does not fit is on the pages that `next` names
        assert program("invoices:read").get(f"/api/v1/teams?page_size={size}").status_code == 200
    assert refused("teams", "page_size=0") == "page_size '0': a whole number from 1, of which 1000 is used at most"


@pytest.mark.parametrize("route", ENDPOINTS)
def test_the_format_of_an_answer_is_one_that_there_is(refused: Get, route: str) -> None:
    assert refused(route, "format=xml") == "format 'xml': one of json"
