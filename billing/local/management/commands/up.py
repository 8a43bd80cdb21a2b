"""`manage.py up`: migrate, then web, worker and scheduler in one foreground process group."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command

from billing.local.process_list import PortTakenError, ServedError, account_put, children, serving_alone
from billing.local.schema import schema_lock
from billing.local.supervisor import Supervisor
from billing.runtime.home import home_dir
from billing.tenancy.app_command import AppCommand, fail
from billing.tenancy.people import somebody_manages_people


class Command(AppCommand):
    help = "Bring the schema up to date, then serve: web, worker and scheduler until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)

    def run(self, *, port: int, **_: Any) -> int:
        try:
            with serving_alone(port):
                return self._serve(port)
        except (PortTakenError, ServedError) as error:
            fail(str(error))

    def _serve(self, port: int) -> int:
        with schema_lock():
            call_command("migrate", verbosity=0, interactive=False)
        if not somebody_manages_people():
            name, password = account_put(username="admin", staff=True)
            kept = f"kept in {home_dir() / 'accounts.json'}, and changed at the first sign-in"
            self.say(f"First start: sign in as {name} with {password} ({kept})")
        served = f"Suanpan: http://127.0.0.1:{port}  (state in {home_dir()}; Ctrl-C stops everything)"
        return Supervisor(children(port), on_ready=lambda: self.say(served)).run()
