"""A passkey as a phone keeps it: a key of its own, which signs what a site asks it to."""

import json
import secrets
from hashlib import sha256
from typing import Any

from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.webauthn.internal.auth import WebAuthn
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from django.contrib.auth.models import User
from django.test import Client
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData

PRESENT_AND_VERIFIED = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV
ADDRESS = "/account/2fa/webauthn/login/"
SITE = "localhost"
"""Passkeys work on https alone, and on this host."""


class Passkey:
    """The passkey of one account, which opens a session with nothing else."""

    def __init__(self, user: User) -> None:
        self.key, self.identity = generate_private_key(SECP256R1()), secrets.token_bytes(16)
        self.handle = websafe_encode(user_pk_to_url_str(user).encode())
        public = ES256.from_cryptography_key(self.key.public_key())
        known = AttestedCredentialData.create(Aaguid.NONE, self.identity, public)
        made = self._seen(PRESENT_AND_VERIFIED | AuthenticatorData.FLAG.AT, known)
        answer = {"attestationObject": websafe_encode(AttestationObject.create("none", made, {}))}
        kept = self._credential("webauthn.create", secrets.token_urlsafe(32), answer)
        WebAuthn.add(user, "phone", {**kept, "clientExtensionResults": {"credProps": {"rk": True}}})

    def sign_in(self, client: Client) -> None:
        """Answer what the site asks of any passkey."""
        asked = client.get(ADDRESS, headers={"x-requested-with": "XMLHttpRequest"}).json()["request_options"]["publicKey"]
        data = self._seen(PRESENT_AND_VERIFIED)
        shown = {"authenticatorData": websafe_encode(data), "userHandle": self.handle}
        answer = self._credential("webauthn.get", asked["challenge"], shown)
        said = json.dumps(self.said).encode()
        signature = self.key.sign(bytes(data) + sha256(said).digest(), ECDSA(SHA256()))
        answer["response"]["signature"] = websafe_encode(signature)
        client.post(ADDRESS, {"credential": json.dumps(answer)})

    def _seen(self, flags: AuthenticatorData.FLAG, known: bytes = b"") -> AuthenticatorData:
        return AuthenticatorData.create(sha256(SITE.encode()).digest(), flags, 1, known)

    def _credential(self, kind: str, challenge: str, answer: dict[str, str]) -> dict[str, Any]:
        self.said = {"type": kind, "challenge": challenge, "origin": f"http://{SITE}", "crossOrigin": False}
        client_data = websafe_encode(json.dumps(self.said).encode())
        identity, response = websafe_encode(self.identity), {**answer, "clientDataJSON": client_data}
        return {"id": identity, "rawId": identity, "type": "public-key", "response": response}
