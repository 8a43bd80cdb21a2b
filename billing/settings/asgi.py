"""The ASGI entry point of the receiver, which runs beside the web workers."""

import gc
import logging
import os
import resource
from typing import Final

import django
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
django.setup()

from billing.api.receiver import Receiver  # noqa: E402 - Django has to be set up first

logger = logging.getLogger(__name__)
NEW_OBJECTS: Final = 10_000
"""After how many of them Python looks for cycles: a batch of records makes thousands, none of which is part of one."""

OTHER_FILES: Final = 256
"""What is open beside the connections of clients."""


def allow_files(number: int) -> None:
    """Let this process have so many files open, as far as the system allows."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if most == resource.RLIM_INFINITY else min(number, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if wanted < number:
        logger.warning("%d files may be open, not %d: raise ulimit -n or lower INGEST_MAX_CONNECTIONS", wanted, number)


application = Receiver()
allow_files(settings.INGEST_MAX_CONNECTIONS + OTHER_FILES)

gc.collect()
gc.freeze()  # what lives as long as the process is not looked at again
gc.set_threshold(NEW_OBJECTS)
