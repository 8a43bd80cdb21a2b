"""A NUL in an address finds nothing, whichever page it is asked of: no page breaks of it."""

from pathlib import Path

import pytest
from django.urls import URLPattern

from billing.portal import urls
from tests.factories import apply, person, signed_in

pytestmark = pytest.mark.django_db
NAMES = ("q", "who", "kind", "about", "month", "team", "workload", "old", "sheet", "status", "page", "table", "by")


def pages() -> list[str]:
    """Addresses of the portal that take no number."""
    routes = [item.pattern._route for item in urls.urlpatterns if isinstance(item, URLPattern)]  # type: ignore[attr-defined]
    return sorted(route for route in routes if "<" not in route and route not in ("login/", "logout/"))


def test_a_nul_in_the_query_of_any_page_is_answered(tmp_path: Path) -> None:
    apply(tmp_path)
    client = signed_in(person("fin", "finance", "admin"))
    assert len(pages()) > 25
    answers = {
        f"/{route}?{name}=a%00b": client.get(f"/{route}", {name: "a\0b"}).status_code for route in pages() for name in NAMES
    }
    first_steps = {address for address in answers if address.startswith("/start/")}  # which looks for none of these names
    assert {answers[address] for address in answers.keys() - first_steps} <= {404, 405}
    assert {answers[address] for address in first_steps} == {200, 405}


@pytest.mark.parametrize("path", ["/teams/%00/", "/teams/nlp/lines/%00/", "/teams/a%00b/evidence/"])
def test_a_nul_in_a_path_finds_nothing(tmp_path: Path, path: str) -> None:
    apply(tmp_path)
    client = signed_in(person("fin", "finance"))
    assert client.get(path).status_code == 404
