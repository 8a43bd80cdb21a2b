"""HTTP endpoints `/healthz`, `/readyz` and `/metrics` of the agent, in Prometheus' text format."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Gauge, generate_latest


class Health:
    """Health of the agent; set by its loop, read by probes and scrapes."""

    def __init__(self, alive: Callable[[], bool]) -> None:
        self.alive = alive
        self.ready = self.standby = False
        self.registry = CollectorRegistry()
        names = {
            "open_holds": "pods that hold accelerators",
            "kept_holds": "ended pods that are still remembered",
            "unreported_holds": "pods with news that are not in the spool yet",
            "spool_bytes": "bytes that wait to be delivered",
            "spool_full": "1 while the spool has no room: the platform has taken nothing for long",
            "oldest_parcel_age_seconds": "age of what waits longest",
            "watermark_timestamp_seconds": "up to when everything is known",
            "lists": "complete lists of pods since the start",
            "unknown_resources": "unknown extended resources",
            "unreadable_objects": "objects that could not be metered",
            "reconciliation_difference": "pods on which the last scan and the holds did not agree",
            "queue_difference": "units on which Volcano's queues and the holds did not agree at the last scan",
            "leading": "1 where this agent reports",
        }
        self.gauges = {
            name: Gauge(f"suanpan_agent_{name}", text, registry=self.registry) for name, text in names.items()
        }

    def set(self, **values: float) -> None:
        """Set gauges to their present values."""
        for name, value in values.items():
            self.gauges[name].set(value)

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return status and body for a path."""
        if path == "/healthz":
            return (200, b"ok\n") if self.alive() else (503, b"the loop is stuck\n")
        if path == "/readyz":
            ready = b"ok, standing by: another agent holds the lease\n" if self.standby else b"ok\n"
            return (200, ready) if self.ready else (503, b"the first list is not complete\n")
        return (200, generate_latest(self.registry)) if path == "/metrics" else (404, b"not found\n")


class HealthServer(ThreadingHTTPServer):
    """Server of the health endpoints on a port of all interfaces; 0 picks a free one."""

    daemon_threads = True

    def __init__(self, health: Health, port: int) -> None:
        super().__init__(("", port), _Handler)
        self.health = health
        self._thread = threading.Thread(target=self.serve_forever, name="health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer

    def do_GET(self) -> None:
        """Answer a probe or a scrape."""
        status, body = self.server.health.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log no probe."""
