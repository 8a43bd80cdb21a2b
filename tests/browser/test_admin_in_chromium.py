"""The admin in real Chromium: its pages work under their policy, which runs nothing that is in a page."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.browser.polling import wait_until_true
from tests.factories.browser import scenario
from tests.factories.browser_tasks import SIZES
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def window(scenario: Scenario, browser: Any, live_server: Any) -> Any:
    """A window of a superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="Not-used-here-1"))
    context = browser.new_context(base_url=live_server.url, viewport=SIZES["desk"])
    cookie = {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}
    context.add_cookies([cookie])
    yield context.new_page()
    context.close()


def addresses() -> list[str]:
    """The front page, and of every table its list, its empty form, and the form of its first row."""
    found = ["/admin/"]
    for model in admin.site._registry:
        at = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        first = model._default_manager.order_by("pk").first()
        found += [reverse(f"{at}_changelist"), reverse(f"{at}_add")]
        found += [reverse(f"{at}_change", args=[first.pk])] if first else []
    return found


def test_every_page_of_the_admin_works_under_its_policy(window: Any) -> None:
    """Nothing is refused, nothing fails; menus open, which takes the one evaluation that the policy grants."""
    failed: list[str] = []
    window.on("console", lambda said: failed.append(f"{said.text} {said.location['url']}") if said.type == "error" else None)
    window.on("pageerror", lambda error: failed.append(str(error)))
    opened = 0
    for address in addresses():
        answer = window.goto(address)
        if answer.status != 403:  # a table that nobody writes by hand has no form
            assert answer.status == 200, address
            opened += 1
            assert answer.headers["content-security-policy"].count("unsafe") == 2
    assert opened > 10
    assert [text for text in failed if "403" not in text] == []
    wait_until_true(window, "window.Alpine !== undefined")


def test_what_stands_in_a_page_of_the_admin_does_not_run(window: Any) -> None:
    window.goto("/admin/")
    window.evaluate(
        """() => { const script = document.createElement('script'); script.textContent = 'window.ran = 1';
                   document.body.append(script);
                   document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.ran = 2">');
                   return new Promise((failed) => document.body.lastElementChild.addEventListener('error', failed)); }"""
    )
    assert window.evaluate("window.ran === undefined")


def test_no_page_of_the_admin_is_wider_than_a_phone(window: Any) -> None:
    window.set_viewport_size(SIZES["phone"])
    beyond = {}
    for address in addresses():
        window.goto(address)
        beyond[address] = window.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert {address: width for address, width in beyond.items() if width > 0} == {}
