"""`manage.py demo [--no-serve] [--json]`: a full month of a made-up company, then the portal."""

import contextlib
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import httpx
from django.core.management import call_command
from django.utils import timezone

from billing.config.commands import DONE, HouseCommand, fail
from billing.config.demo.driver import DemoError, Demonstration, last_month
from billing.config.demo.set_up_text import ZONE
from billing.config.home import home_dir
from billing.config.house import PortTakenError, account_put, check_port, children, free_port
from billing.config.supervisor import Supervisor
from billing.invoicing.selectors import invoices_as_dict, invoices_of
from billing.tenancy.tokens import api_token_create
from billing.usage.selectors import usage_counts

WEB_WITHIN_S = 60


class Command(HouseCommand):
    help = "Report, price, close and issue a demonstration month through the real doors; then serve the portal."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-serve", action="store_true", help="stop when the invoices are issued")
        parser.add_argument("--port", type=int, default=8000)
        self.add_json(parser)

    def run(self, *, no_serve: bool, port: int, json: bool, **_: Any) -> int:
        started = time.monotonic()
        try:
            check_port(port := free_port() if no_serve else port)
        except PortTakenError as error:
            fail(str(error))
        call_command("migrate", verbosity=0, interactive=False)
        say = (lambda _: None) if json else self.say
        month = last_month(timezone.now(), ZONE)
        say(f"Suanpan demonstration: {month} of a made-up company, from a fixed seed")
        supervisor = Supervisor(children(port))
        with _running(supervisor):
            url = f"http://127.0.0.1:{port}"
            try:
                _wait_for(url)
                demonstration = Demonstration(url=url, month=month, home=home_dir(), say=say)
                demonstration.run()
            except (DemoError, httpx.HTTPError) as error:
                fail(f"demo: {error}")
            self._conclude(demonstration, url, time.monotonic() - started, json=json, served=not no_serve)
            return DONE if no_serve else supervisor.wait()

    def _conclude(
        self, demonstration: Demonstration, url: str, elapsed: float, *, json: bool, served: bool
    ) -> None:
        finance = account_put(username="finance", staff=True)
        lead = account_put(username="lead-nlp", staff=False, team="nlp")
        _, token = api_token_create(
            name="demo reader", scopes=["usage:write", "usage:read", "prices:read", "invoices:read"], actor="demo"
        )
        if json:
            self.print_json(
                {
                    **invoices_as_dict(demonstration.month),
                    "elapsed_s": round(elapsed, 1),
                    "usage": usage_counts(),
                    "home": str(home_dir()),
                    "documents": [str(path) for path in demonstration.documents],
                    "url": url,
                    "accounts": {"finance": finance[1], "lead-nlp": lead[1]},
                    "api_token": token,
                }
            )
            return
        self.say(f"\nInvoices of {demonstration.month}")
        for invoice in invoices_of(demonstration.month):
            self.say(f"  {invoice.number}  {invoice.team.code:<12} {invoice.total:>14,} {invoice.currency}")
        counts = usage_counts()
        self.say(f"\n{counts['allocations']:,} allocations and {counts['token_records']:,} token records in {elapsed:.0f} s")
        self.say(f"  documents   {home_dir() / 'demo' / 'invoices'}")
        self.say(f"  set-up      {home_dir() / 'demo' / 'set-up.yaml'}")
        self.say(f"  API token   {token}")
        if served:
            self.say(f"\nPortal: {url}")
            self.say(f"  {finance[0]:<9} password {finance[1]:<14} sees everything")
            self.say(f"  {lead[0]:<9} password {lead[1]:<14} sees team nlp")
            self.say("Ctrl-C stops everything.")


@contextlib.contextmanager
def _running(supervisor: Supervisor) -> Iterator[None]:
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + WEB_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise DemoError(f"{url} did not become ready within {WEB_WITHIN_S} s")
