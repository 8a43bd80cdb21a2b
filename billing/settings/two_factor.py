"""Second factor of local accounts, with its secret encrypted at rest."""

import base64
from hashlib import sha256

from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet
from django.conf import settings


class SealedSecrets(DefaultMFAAdapter):
    """Adapter that encrypts the secrets of second factors with a key derived from SECRET_KEY: a stolen table is useless."""

    def encrypt(self, text: str) -> str:
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _sealer().decrypt(encrypted_text.encode()).decode()


def _sealer() -> Fernet:
    key = sha256(b"second factors:" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
