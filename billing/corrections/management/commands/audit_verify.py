"""`manage.py audit_verify`"""

from argparse import ArgumentParser
from typing import Any

from django.db import connection

from billing.corrections.close_proof import closes_altered
from billing.tenancy.anchor_places import PlaceError
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail
from billing.tenancy.audit_anchors import anchors_read
from billing.tenancy.audit_chain import Anchor, ChainProof, audit_chain_prove

HASH_LETTERS = 64


class Command(AppCommand):
    help = (
        "Prove that no entry of the audit log was changed, removed or put in between, and that each close is as the log "
        "says; 3 if not. With anchors that were kept elsewhere (AUDIT_ANCHOR sends them) also that "
        "nobody made the whole chain anew or cut its end off."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--anchor", action="append", default=[], metavar="WHERE",
            help="a file of anchors, s3://bucket/prefix, or ORDINAL:DIGEST as an earlier run printed it; repeatable",
        )  # fmt: skip
        self.take(parser, "json")

    def run(self, *, anchor: list[str], json: bool, **_: Any) -> int:
        connection.ensure_connection()
        proof = audit_chain_prove(connection.connection, [found for text in anchor for found in _anchors(text)])
        faults = [*proof.faults, *map(str, closes_altered())]
        if json:
            self.print_json({
                "entries": proof.ordinal, "head": proof.digest, "ok": not faults, "faults": faults,
                "anchors": proof.anchors,
            })  # fmt: skip
        else:
            self._print(proof, faults)
        return DECIDE if faults else DONE

    def _print(self, proof: ChainProof, faults: list[str]) -> None:
        for fault in faults:
            self.say(f"  FAIL {fault}")
        if not faults:
            anchored = f", as {proof.anchors:,} anchors say" if proof.anchors > 1 else ""
            self.say(f"the audit log holds: {proof.ordinal:,} entries, head {proof.ordinal}:{proof.digest}{anchored}")


def _anchors(text: str) -> list[Anchor]:
    """A head, or all that are kept somewhere; none at all proves nothing and is refused."""
    ordinal, _, digest = text.partition(":")
    if ordinal.isdigit() and len(digest) == HASH_LETTERS:
        return [(int(ordinal), digest)]
    try:
        found = anchors_read(text)
    except FileNotFoundError:
        fail(f"--anchor: {text!r} is not ORDINAL:DIGEST as this command prints it, and no file")
    except (PlaceError, OSError) as error:
        fail(f"--anchor: {error}")
    except Exception as error:  # noqa: BLE001 -- the client of an object store raises its own
        fail(f"--anchor: {type(error).__name__}: {error}")
    if not found:
        fail("--anchor: no anchor is kept there, so that nothing would be compared")
    return found
