"""An identity provider in this process."""

import base64
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from django.contrib.auth.models import User
from django.test import Client

from billing.settings.identity_settings import provider_apps, read_group_roles
from tests.http_servers import HttpServer, Request, serving


class Provider(HttpServer):
    """The part of OpenID Connect that a sign-in needs; who signs in is set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.person: dict[str, Any] = {}
        self.codes: dict[str, tuple[str, str]] = {}
        self.key = generate_private_key(65537, 2048)
        self.public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))

    def answer(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        base, path = self.address, urlsplit(request.path).path
        found = self._tokens(request.body) if path == "/token" else {
            "/.well-known/openid-configuration": {
                "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
                "userinfo_endpoint": f"{base}/userinfo", "jwks_uri": f"{base}/jwks",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            },
            "/userinfo": self.person, "/jwks": {"keys": [self.public]},
        }[path]  # fmt: skip
        return 200, json.dumps(found).encode(), {"Content-Type": "application/json"}

    def _tokens(self, body: bytes) -> dict[str, Any]:
        form = parse_qs(body.decode())
        assert form["client_secret"] == ["provider-secret"]
        challenge, nonce = self.codes.pop(form["code"][0])
        assert challenge == _challenge(form["code_verifier"][0])
        facts = {"nonce": nonce, "iss": self.address, "aud": "suanpan", "iat": 1, "exp": 4_000_000_000}
        token = jwt.encode({**self.person, **facts}, self.key, algorithm="RS256")
        return {"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": token}

    def come_back(self, client: Client, away: Any) -> Any:
        """Sign the person in there, and bring the browser back with a code."""
        asked = parse_qs(urlsplit(away["Location"]).query)
        assert away["Location"].startswith(f"{self.address}/authorize?")
        code = secrets.token_hex(8)
        self.codes[code] = asked["code_challenge"][0], asked["nonce"][0]
        return client.get("/account/oidc/oidc/login/callback/", {"code": code, "state": asked["state"][0]})


def _challenge(verifier: str) -> str:
    from hashlib import sha256

    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with serving(Provider()) as server:
        apps = provider_apps({
            "OIDC_SERVER_URL": server.address, "OIDC_CLIENT_ID": "suanpan", "OIDC_CLIENT_SECRET": "provider-secret",
            "OIDC_NAME": "Company sign-in",
        })  # fmt: skip
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": apps}}
        settings.OIDC_ROLES = read_group_roles('{"gpu-finance": "finance", "nlp-leads": ["lead:nlp", "lead:not-there"]}')
        yield server


def sign_in_there(provider: Provider, **person: Any) -> Client:
    """What a browser does: press the button, be sent to the provider, come back with a code."""
    provider.person = {"preferred_username": "mei", "email": "mei@example.org", **person}
    client = Client()
    away = client.post("/account/oidc/oidc/login/?process=login")
    assert away.status_code == 302, away.content
    back = provider.come_back(client, away)
    assert back.status_code == 302, back.content
    assert back["Location"] == "/"
    return client


def code_of(person: User) -> str:
    from billing.settings.two_factor import SealedSecrets

    row = Authenticator.objects.get(user=person, type="totp")
    return code_for(SealedSecrets().decrypt(row.data["secret"]))


def code_for(secret: str, half_minutes_ago: int = 0) -> str:
    """What an authenticator app shows now, or showed."""
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 - half_minutes_ago))
