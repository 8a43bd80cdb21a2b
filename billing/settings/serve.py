"""`python -m billing.settings.serve`: Uvicorn with the limits that keep slow clients from stopping it."""

import argparse
import os
import sys
from tempfile import TemporaryDirectory
from typing import Any, Final

import uvicorn
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from uvicorn.supervisors import multiprocess

from billing.runtime.home import HomeError

OPTIONS: Final[dict[str, Any]] = {
    "http": "billing.api.limited_connection:LimitedConnection", "loop": "uvloop", "ws": "none", "lifespan": "on",
    "access_log": False, "server_header": False,
    "proxy_headers": False,  # Django reads them, according to TRUSTED_PROXIES
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": 20,  # longer than a queued report waits, so that every received report is answered
}  # fmt: skip
"""Options of every Uvicorn server of the project."""


def main() -> None:
    """Serve web until a signal ends it. An error at the start is one line, and the exit status is not 0."""
    parser = argparse.ArgumentParser(prog="python -m billing.settings.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--log-level", choices=("error", "warning", "info"), default="error")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
    try:
        workers, as_json = settings.WEB_WORKERS, settings.LOG_FORMAT == "json"
    except (HomeError, ImproperlyConfigured) as error:  # else Uvicorn would restart the worker forever
        sys.exit(f"error: {error}")
    with TemporaryDirectory(prefix="suanpan-metrics-") as folder:  # workers use it with their first counter
        # set before workers start: the metrics library chooses its storage on import
        if workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        serve(
            "billing.settings.web:application", host=options.host, port=options.port, workers=workers,
            log_level=options.log_level, **({"log_config": settings.LOGGING} if as_json else {}),
        )  # fmt: skip


class Worker(multiprocess.Process):
    """Worker process whose pipe ends with it.

    Uvicorn keeps the worker's end of the pipe open in the parent as well. If a worker is killed while the parent waits for
    its heartbeat, as it does while a worker starts, the parent would notice only after the heartbeat's timeout, and start no
    other worker until then.
    """

    def start(self) -> None:
        super().start()
        self.child_conn.close()


def serve(
    application: str, *, port: int, host: str = "127.0.0.1", workers: int = 1, log_level: str = "error", **more: Any
) -> None:
    """Serve an ASGI application, given by import path, until a signal ends it."""
    multiprocess.Process = Worker  # type: ignore[misc]  # Uvicorn has no option for it
    uvicorn.run(
        application, host=host, port=port, workers=workers, log_level=log_level, timeout_worker_healthcheck=60,
        **OPTIONS, **more,
    )  # fmt: skip


if __name__ == "__main__":
    main()
