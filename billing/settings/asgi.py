"""The ASGI entry point of the receiver, which runs beside the web workers."""

import gc
import os
from typing import Final

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
django.setup()

from billing.api.limited_connection import allow_connections  # noqa: E402 - Django has to be set up first
from billing.api.receiver import Receiver  # noqa: E402

NEW_OBJECTS: Final = 10_000
"""After how many of them Python looks for cycles: a batch of records makes thousands, none of which is part of one."""

application = Receiver()
allow_connections()

gc.collect()
gc.freeze()  # what lives as long as the process is not looked at again
gc.set_threshold(NEW_OBJECTS)
