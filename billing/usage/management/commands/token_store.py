"""`manage.py token_store --by USER`"""

from argparse import ArgumentParser
from typing import Any

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store.clickhouse import token_servers
from billing.usage.store.sharded import replicas_state


class Command(AppCommand):
    help = (
        "Make the tables of TOKEN_STORE in ClickHouse where they are missing, and let it take token records from now on, "
        "which is for ever: PostgreSQL then takes none. Shows what each replica has."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "by", "json")

    def run(self, *, by: str | None, json: bool, **_: Any) -> int:
        actor = operator(by, Right.CLOSE, Right.OPERATE)
        servers = token_servers()
        if servers is None:
            fail("TOKEN_STORE is not set: PostgreSQL keeps the token records")
        begun, found = token_store_begin(servers=servers, actor=actor), replicas_state(servers)
        if json:
            names = ("shard", "replica", "state")
            self.print_json({"begun": begun, "replicas": [dict(zip(names, item, strict=True)) for item in found]})
            return DONE
        for shard, replica, state in found:
            self.say(f"shard {shard}  {replica:<30} {state}")
        if begun:
            self.say("token records go to ClickHouse from now on")
        return DONE
