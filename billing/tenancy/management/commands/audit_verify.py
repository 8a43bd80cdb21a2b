"""`manage.py audit_verify`"""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.db import connection

from billing.tenancy.app_command import DECIDE, DONE, AppCommand
from billing.tenancy.audit_chain import Anchor, ChainProof, audit_chain_prove


class Command(AppCommand):
    help = (
        "Prove that no entry of the audit log was changed, removed or put in between; 3 if one was. Keep the head that it "
        "prints outside of the database: given back with --anchor, it also proves that the end was not cut off."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--anchor", type=_anchor, metavar="ORDINAL:DIGEST", help="a head that an earlier run printed"
        )
        self.add_json(parser)

    def run(self, *, anchor: Anchor | None, json: bool, **_: Any) -> int:
        connection.ensure_connection()
        proof = audit_chain_prove(connection.connection, anchor)
        if json:
            self.print_json({"entries": proof.ordinal, "head": proof.digest, "ok": not proof.faults, "faults": proof.faults})
        else:
            self._print(proof)
        return DECIDE if proof.faults else DONE

    def _print(self, proof: ChainProof) -> None:
        for fault in proof.faults:
            self.say(f"  FAIL {fault}")
        if not proof.faults:
            self.say(f"the audit log holds: {proof.ordinal:,} entries, head {proof.ordinal}:{proof.digest}")


def _anchor(text: str) -> Anchor:
    ordinal, _, digest = text.partition(":")
    if not ordinal.isdigit() or len(digest) != 64:
        raise ArgumentTypeError(f"{text!r} is not ORDINAL:DIGEST as this command prints it")
    return int(ordinal), digest
