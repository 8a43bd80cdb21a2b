"""`manage.py demo [--no-serve] [--json]`: six months of a made-up company, one of them in detail, then the portal."""

import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from billing.invoices.selectors import invoices_as_dict, invoices_of
from billing.local.demo.driver import ACTOR, Demonstration, last_month
from billing.local.demo.set_up_text import ZONE
from billing.local.process_list import (
    PortTakenError,
    ServedError,
    account_put,
    children,
    demonstration_accounts,
    free_port,
    serving_alone,
)
from billing.local.schema import schema_lock
from billing.local.supervisor import Supervisor
from billing.runtime.home import home_dir
from billing.tenancy.app_command import DECIDE, AppCommand, fail
from billing.tenancy.tokens import api_token_create
from billing.usage.selectors import usage_counts
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store.clickhouse import token_servers


class Command(AppCommand):
    help = "Report, price, close and issue six demonstration months through the real endpoints; then serve the portal."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-serve", action="store_true", help="stop when the invoices are issued")
        parser.add_argument("--port", type=int, default=8000)
        self.take(parser, "json")

    def run(self, *, no_serve: bool, port: int, json: bool, **_: Any) -> int:
        port = free_port() if no_serve else port
        try:
            with serving_alone(port):
                return self._demonstrate(port, no_serve=no_serve, json=json)
        except (PortTakenError, ServedError) as error:
            fail(str(error))

    def _demonstrate(self, port: int, *, no_serve: bool, json: bool) -> int:
        started = time.monotonic()
        with schema_lock():
            call_command("migrate", verbosity=0, interactive=False)
        if servers := token_servers():
            token_store_begin(servers=servers, actor=ACTOR)
        say = (lambda _: None) if json else self.say
        now = timezone.now()
        month = last_month(now, ZONE)
        say(f"Suanpan demonstration: six months of a made-up company until now, {month} in detail, from a fixed seed")
        demonstration = Demonstration(
            url=f"http://127.0.0.1:{port}", month=month, home=home_dir(), now=now, say=say, to_the_end=no_serve
        )
        steps = _Steps(demonstration, then_stop=no_serve)
        steps.conclude = lambda: self._conclude(demonstration, time.monotonic() - started, json=json, served=not no_serve)
        status = Supervisor(children(port), on_ready=steps.start, out=sys.stderr).run()
        if steps.error is not None:
            fail(f"demo: {steps.error}")
        return status if steps.done else DECIDE

    def _conclude(self, demonstration: Demonstration, elapsed: float, *, json: bool, served: bool) -> None:
        finance, controller = demonstration_accounts()
        lead = account_put(username="lead-nlp", staff=False, team="nlp")
        _, token = api_token_create(
            name="demo reader", scopes=["usage:write", "usage:read", "prices:read", "invoices:read"], actor="demo"
        )
        if json:
            self.print_json(
                {
                    **invoices_as_dict(demonstration.month),
                    "elapsed_s": round(elapsed, 1),
                    "usage": demonstration.usage,
                    "ledger": usage_counts(),
                    "running": demonstration.running,
                    "until": demonstration.until.isoformat(),
                    "home": str(home_dir()),
                    "documents": [str(path) for path in demonstration.documents],
                    "url": demonstration.url,
                    "accounts": dict([finance, controller, lead]),
                    "api_token": token,
                }
            )
            return
        self.say()
        self.say(f"Invoices of {demonstration.month}")
        for invoice in invoices_of(demonstration.month):
            self.say(f"  {invoice.number}  {invoice.team.code:<12} {invoice.total:>14,} {invoice.currency}")
        counts = usage_counts()
        self.say()
        self.say(f"{counts['allocations']:,} allocations and {counts['token_records']:,} token records in {elapsed:.0f} s")
        self.say(f"  documents   {home_dir() / 'demo' / 'invoices'}")
        self.say(f"  set-up      {home_dir() / 'demo' / 'set-up.yaml'}")
        self.say(f"  API token   {token}")
        if served:
            self.say()
            self.say(f"Portal: {demonstration.url}/?month={demonstration.month}")
            seen = {
                finance: "sees everything", lead: "sees team nlp",
                controller: "as well, and approves: who asks for something does not approve it",
            }  # fmt: skip
            for name, password in (finance, controller, lead):
                shown = f"password {password}" if password else "the password chosen there"
                self.say(f"  {name:<11} {shown:<23} {seen[name, password]}")
            self.say("  A first password is changed at the first sign-in.")
            self.say("Ctrl-C stops everything.")


class _Steps(threading.Thread):
    """Thread of the demonstration's steps; the supervisor needs the main thread for its signals."""

    def __init__(self, demonstration: Demonstration, *, then_stop: bool) -> None:
        super().__init__(name="demonstration", daemon=True)
        self.demonstration, self.then_stop = demonstration, then_stop
        self.conclude: Callable[[], None] = lambda: None
        self.error: Exception | None = None
        self.done = False

    def run(self) -> None:
        try:
            self.demonstration.run()
            self.conclude()
            self.done = True
        except Exception as error:  # noqa: BLE001 - the edge of a thread: the main thread reports it
            self.error = error
        finally:
            connection.close()
            if self.then_stop or not self.done:
                os.kill(os.getpid(), signal.SIGTERM)
