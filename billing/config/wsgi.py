"""The WSGI entry point of web workers."""

import gc
import os
from typing import Any, Final

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.config.settings")
_django = get_wsgi_application()

from billing.api import token_door  # noqa: E402 - Django has to be set up first

NEW_OBJECTS: Final = 10_000
"""After how many of them Python looks for cycles: a batch of records makes thousands, none of which is part of one."""

gc.collect()
gc.freeze()  # what lives as long as the process is not looked at again
gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def application(environ: dict[str, Any], start_response: Any) -> Any:
    """Django, but for the one door that is too busy for it."""
    if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == token_door.PATH:
        return token_door.serve(environ, start_response)
    return _django(environ, start_response)
