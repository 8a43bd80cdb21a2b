"""The ASGI entry point of the receiver of token records, which runs beside the web workers."""

import gc
import os
from typing import Final

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.config.settings")
django.setup()

from billing.api.token_receiver import TokenReceiver  # noqa: E402 - Django has to be set up first

NEW_OBJECTS: Final = 10_000
"""After how many of them Python looks for cycles: a batch of records makes thousands, none of which is part of one."""

application = TokenReceiver()

gc.collect()
gc.freeze()  # what lives as long as the process is not looked at again
gc.set_threshold(NEW_OBJECTS)
