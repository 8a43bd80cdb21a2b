"""The administration carries the product's name, and the portal leads there whoever may open it."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.factories import apply, person, signed_in

pytestmark = pytest.mark.django_db


def test_the_administration_has_the_name_of_the_product() -> None:
    text = signed_in(User.objects.create_superuser("root")).get("/admin/").content.decode()
    assert "Suanpan 算盘" in text
    assert "Administration" in text
    assert not [words for words in ("Django", "What is rare") if words in text]


def test_only_whoever_may_open_it_is_led_there(tmp_path: Path) -> None:
    apply(tmp_path)
    person("fin", "finance")
    person("ann", "admin")
    for name, shown, status in (("fin", False, 302), ("ann", True, 200)):
        client = signed_in(name)
        assert ('href="/admin/"' in client.get("/budgets/").content.decode()) is shown
        assert client.get("/admin/").status_code == status


def test_its_times_are_those_of_the_installation(tmp_path: Path) -> None:
    apply(tmp_path)
    text = signed_in(User.objects.create_superuser("root")).get("/admin/rates/priceversion/").content.decode()
    assert "Oct. 1, 2026, midnight" in text
    assert "4 p.m." not in text


def test_its_parts_have_the_words_of_the_portal() -> None:
    text = signed_in(User.objects.create_superuser("root")).get("/admin/").content.decode()
    assert not [words for words in ("Authentication and Authorization", "MFA", "Social", "Groups", "Rates") if words in text]
    assert "Second factors" in text
