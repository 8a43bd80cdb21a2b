"""A real OpenID provider on loopback and a web process that signs people in through it, once for each module."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from billing.local.process_list import free_port
from tests import factories
from tests.factories.servers import WebProcess, until
from tests.npm import npm_installed

SOURCE = Path(__file__).parent / "provider"
CLIENT_ID, CLIENT_SECRET = "suanpan", "a secret of the client that is long enough"
PASSWORD = "the provider knows it"
ROLES = {"gpu-finance": "finance", "nlp-leads": "lead:nlp", "cv-leads": "lead:cv"}


class Provider:
    """The provider process; its people and what it gets wrong are set by the test."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = generate_private_key(65537, 2048)

    def people(self, **people: dict[str, Any]) -> None:
        """Exactly these people have accounts there; all have one password."""
        known = {sub: {"password": PASSWORD, "preferred_username": sub, **claims} for sub, claims in people.items()}
        httpx.put(f"{self.url}/test/people", json=known).raise_for_status()

    def tamper(self, **claims: Any) -> None:
        """Change claims of id_token or userinfo, or who signs ID tokens, from now on; none: all is well."""
        httpx.put(f"{self.url}/test/tamper", json=claims).raise_for_status()

    def signed(self, claims: dict[str, Any], *, key: RSAPrivateKey | None = None, typ: str = "logout+jwt") -> str:
        """A token that the provider might have signed."""
        return jwt.encode(claims, key or self.key, algorithm="RS256", headers={"kid": "one", "typ": typ})


class Browser:
    """Somebody's browser, which has the cookies of both sites."""

    def __init__(self, site: str, issuer: str) -> None:
        self.http = httpx.Client(base_url=site, follow_redirects=True, timeout=60)
        self.site, self.issuer = site, issuer

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form of the portal."""
        return self.http.post(path, data={**fields, "csrfmiddlewaretoken": self.http.cookies["csrftoken"]})

    def to_provider(self) -> httpx.Response:
        """Press the button of the provider: its page, or where it sends somebody whom it knows already."""
        self.http.get("/login/")
        return self.post("/account/oidc/oidc/login/?process=login")

    def sign_in(self, sub: str, password: str = PASSWORD) -> httpx.Response:
        """Go through the provider: its page, name and password, and back."""
        page = self.to_provider()
        assert "/interaction/" in str(page.url), page.text
        return self.http.post(str(page.url), data={"login": sub, "password": password})

    def sign_out_at_provider(self) -> None:
        """End the session there, as its own pages do."""
        page = self.http.get(f"{self.issuer}/session/end")
        (secret,) = re.findall(r'name="xsrf" value="([^"]+)"', page.text)
        self.http.post(f"{self.issuer}/session/end/confirm", data={"xsrf": secret, "logout": "yes"}).raise_for_status()

    def status(self, path: str) -> int:
        """What a page of the portal answers, without being sent on."""
        return self.http.get(path, follow_redirects=False).status_code

    def is_signed_in(self) -> bool:
        """Whether the portal knows this browser."""
        return self.status("/account/2fa/") == httpx.codes.OK


NewBrowser = Callable[[], Browser]


@pytest.fixture(scope="module")
def provider_and_site(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[tuple[Provider, WebProcess]]:
    """Both processes; they know each other. The module may name further SETTINGS."""
    provider = Provider()
    with django_db_blocker.unblock():
        site = WebProcess(
            1, OIDC_SERVER_URL=provider.url, OIDC_CLIENT_ID=CLIENT_ID, OIDC_CLIENT_SECRET=CLIENT_SECRET,
            OIDC_ROLES=json.dumps(ROLES), **getattr(request.module, "SETTINGS", {}),
        )  # fmt: skip
        with _running(provider, site):
            site.start()
            try:
                yield provider, site
            finally:
                site.kill()


@pytest.fixture
def provider(provider_and_site: tuple[Provider, WebProcess], transactional_db: None) -> Provider:
    """The provider, with nobody and no fault."""
    provider, _ = provider_and_site
    provider.people()
    provider.tamper()
    return provider


@pytest.fixture
def browser(provider: Provider, provider_and_site: tuple[Provider, WebProcess], tmp_path: Path) -> Iterator[NewBrowser]:
    """A new browser at each call; the portal has teams."""
    factories.apply(tmp_path)
    site = provider_and_site[1].url
    with ExitStack() as stack:

        def opened() -> Browser:
            made = Browser(site, provider.url)
            stack.enter_context(made.http)
            return made

        yield opened


def jwk_of(key: RSAPrivateKey) -> dict[str, Any]:
    """A key as the provider reads it, for RS256."""
    return {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key)), "alg": "RS256"}


@contextmanager
def _running(provider: Provider, site: WebProcess) -> Iterator[None]:
    client = {
        "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "token_endpoint_auth_method": "client_secret_post",
        "redirect_uris": [f"{site.url}/account/oidc/oidc/login/callback/"],
        "backchannel_logout_uri": f"{site.url}/account/oidc/oidc/backchannel-logout/",
        "backchannel_logout_session_required": True,
    }  # fmt: skip
    own = {**jwk_of(provider.key), "kid": "one", "use": "sig"}
    setup = {"port": provider.port, "clients": [client], "jwks": {"keys": [own]}}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            ["node", "server.mjs"], cwd=npm_installed(SOURCE), env={**os.environ, "PROVIDER_SETUP": json.dumps(setup)},
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            until(lambda: process.poll() is not None or _answers(provider.url))
            if process.poll() is not None:
                log.seek(0)
                pytest.fail(f"the OpenID provider ended: {log.read()[-4000:]}")
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/openid-configuration").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
