"""Simplified Chinese: every text has one, with the same placeholders, and people switch to it."""

import re

import pytest
from django.test import Client

from tests import catalogue, factories

PLACE = re.compile(r"%\(\w+\)[sd]|%%|`[^`]*`")


def stored() -> dict[catalogue.Message, str]:
    return catalogue.read_po(catalogue.PO.read_text(encoding="utf-8"))


def test_every_text_has_its_chinese_and_none_is_left_over() -> None:
    texts = stored()
    assert set(texts) == set(catalogue.messages()), "run `python -m tests.catalogue` and translate what it names"
    assert not [message for message, chinese in texts.items() if not chinese.strip()]


def test_placeholders_and_code_are_the_same_in_both_languages() -> None:
    for message, chinese in stored().items():
        assert sorted(PLACE.findall(message[-1])) == sorted(PLACE.findall(chinese)), message


def test_the_compiled_catalogue_is_the_written_one() -> None:
    assert catalogue.MO.read_bytes() == catalogue.compiled(stored())


def test_a_text_of_a_template_and_of_code_is_found() -> None:
    found = catalogue.messages()
    assert ("Sign out",) in found  # base.html
    assert ("Waits for approval",) in found  # billing/portal/templatetags
    assert ("Issue %(number)s invoice", "Issue %(number)s invoices") in found


@pytest.mark.django_db
def test_the_browser_chooses_until_somebody_switches() -> None:
    client = Client(headers={"accept-language": "zh-CN,zh;q=0.9"})
    page = client.get("/login/", follow=True).content.decode()
    assert '<html lang="zh-hans">' in page
    assert "用户名" in page
    assert "User name" not in page

    answer = client.post("/i18n/setlang/", {"language": "en", "next": "/login/"})
    assert (answer.status_code, answer["Location"]) == (302, "/login/")
    page = client.get("/login/", follow=True).content.decode()
    assert '<html lang="en">' in page
    assert "User name" in page


@pytest.mark.django_db
def test_the_switch_leads_nowhere_else() -> None:
    answer = Client().post("/i18n/setlang/", {"language": "zh-hans", "next": "https://elsewhere.example/"})
    assert answer["Location"] == "/"


@pytest.mark.django_db
def test_a_signed_in_person_switches_and_stays_on_the_page() -> None:
    client = factories.signed_in(factories.person("ann", "finance"))
    assert 'name="language" value="zh-hans"' in client.get("/prices/").content.decode()
    client.post("/i18n/setlang/", {"language": "zh-hans", "next": "/prices/"})
    page = client.get("/prices/").content.decode()
    assert '<html lang="zh-hans">' in page
    assert "退出登录" in page
    assert "Sign out" not in page


@pytest.mark.django_db
def test_the_description_of_the_api_is_english_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once in a process, of fields whose names and help pages show in the reader's language."""
    monkeypatch.setattr("billing.api.schema.OneDescription._made", {})
    description = Client(headers={"accept-language": "zh-CN"}).get("/api/v1/schema/", {"format": "json"}).content.decode()
    assert "GpuPrice" in description
    assert not [letter for letter in description if "\u4e00" <= letter <= "\u9fff"]
