"""Command `manage.py meter_reading 2026-10 --cluster hq-1 --kwh 12345.6 --source "PDU export" --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.closing.services.energy import meter_reading_put
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, operator


class Command(AppCommand):
    help = "Report what the building's meter counted for a cluster in a month; the period report compares it (3 %)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", required=True)
        parser.add_argument("--kwh", required=True, help="at the building's meter, as price lists state power")
        parser.add_argument("--shared", default="0", help="of it, what no device is charged with by plan (default: 0)")
        parser.add_argument("--source", required=True, help="which meter, which export")
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, cluster: str, kwh: str, shared: str, source: str, json: bool, by: str | None,
            **_: Any) -> int:  # fmt: skip
        reading = meter_reading_put(
            month=month, cluster=cluster, metered=kwh, shared=shared, source=source, actor=operator(by, Right.CLOSE),
            now=timezone.now(),
        )  # fmt: skip
        if json:
            self.print_json(
                {"period": month, "cluster": cluster, "metered_kwh": reading.metered_kwh, "shared_kwh": reading.shared_kwh}
            )
        else:
            self.say(f"{month} {cluster}: {reading.metered_kwh:,} kWh metered, {reading.shared_kwh:,} of them shared")
        return DONE
