"""Tokens signed by the identity provider: verification of ID tokens and logout tokens with its keys.

Source: https://openid.net/specs/openid-connect-core-1_0.html, sections 3.1.3.7 and 10.1.
"""

from collections.abc import Iterable
from typing import Any, Final

import jwt
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter

LEEWAY_S, TIMEOUT_S = 60, 5
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Asymmetric algorithms only: with a shared secret others could sign."""
_issuers: dict[str, tuple[str, jwt.PyJWKClient]] = {}


def signed_claims(adapter: OpenIDConnectOAuth2Adapter, token: str, *, needed: Iterable[str]) -> dict[str, Any]:
    """Return the claims of a token signed by the provider for this client and not expired.  Raises jwt.PyJWTError."""
    client_id = adapter.get_provider().app.client_id
    issuer, keys = provider_keys(adapter)
    claims: dict[str, Any] = jwt.decode(
        token, _key(keys, token), algorithms=ALGORITHMS, audience=client_id, issuer=issuer, leeway=LEEWAY_S,
        options={"require": ["iss", "aud", "iat", *needed]},
    )  # fmt: skip
    # a token for several audiences must name this client as authorized party (azp)
    shared = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", None if shared else client_id) != client_id:
        raise jwt.InvalidAudienceError("the token was made for another client")
    return claims


def provider_keys(adapter: OpenIDConnectOAuth2Adapter) -> tuple[str, jwt.PyJWKClient]:
    """Return issuer and keys of the provider, fetched once; the key client refetches keys by itself, rarely."""
    address = adapter.get_provider().server_url
    if address not in _issuers:
        metadata = adapter.openid_config
        _issuers[address] = metadata["issuer"], jwt.PyJWKClient(metadata["jwks_uri"], timeout=TIMEOUT_S)
    return _issuers[address]


def _key(keys: jwt.PyJWKClient, token: str) -> jwt.PyJWK:
    """Return the key named by the token; a provider with one key need not name it."""
    if "kid" not in jwt.get_unverified_header(token) and len(only := keys.get_jwk_set().keys) == 1:
        return only[0]
    return keys.get_signing_key_from_jwt(token)
