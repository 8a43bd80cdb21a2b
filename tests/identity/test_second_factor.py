"""A second factor that the identity provider asks for counts here, if its ID token says so."""

import pytest
from django.contrib.auth.models import User

from billing.tenancy.models import AuditEntry
from tests.identity.conftest import NewBrowser, Provider

pytestmark = pytest.mark.django_db(transaction=True)
SETTINGS = {"REQUIRE_TWO_FACTOR": "1", "OIDC_SECOND_FACTOR": "acr:two,amr:mfa"}


@pytest.mark.parametrize("claims", [{"acr": "two"}, {"amr": ["pwd", "mfa"]}])
def test_a_second_factor_of_the_provider_is_enough(
    claims: dict[str, object], provider: Provider, browser: NewBrowser
) -> None:
    provider.people(mei={"groups": ["gpu-finance"], **claims})
    mei = browser()
    mei.sign_in("mei")
    assert (mei.status("/close/"), mei.status("/api/v1/price-versions")) == (200, 200)


@pytest.mark.parametrize("claims", [{}, {"acr": "one", "amr": ["pwd"]}, {"amr": "mfa"}])
def test_without_it_nobody_comes_in(claims: dict[str, object], provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={"groups": ["gpu-finance"], **claims})
    mei = browser()
    page = mei.sign_in("mei")
    assert (page.status_code, "did not confirm a second factor" in page.text) == (403, True)
    assert (mei.status("/close/"), mei.status("/api/v1/price-versions")) == (302, 401)
    assert not User.objects.exists()
    assert list(AuditEntry.objects.values_list("action", "subject").filter(action__startswith="sign_")) == [
        ("sign_in_failed", "mei")
    ]


def test_the_provider_is_asked_for_the_context(provider: Provider, browser: NewBrowser) -> None:
    page = browser().to_provider()
    assert "acr_values=two" in str(page.history[0].headers["Location"])
