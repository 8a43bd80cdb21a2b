"""Hash of the reported content that each usage row carries; a change other than by the services leaves the old hash.

The hash is written by the statement that stores a report, never by a trigger: a row changed otherwise keeps the hash of
its former content. It is SHA-256 over the binary form of the columns, which depends on no setting of the session, and on
neither the version nor the architecture of the server.
"""

from collections.abc import Mapping
from typing import Final

from metering.records import DETAIL_COUNTS, DETAIL_TEXTS

ALLOCATION: Final[Mapping[str, str]] = {
    "allocation_id": "text", "identity": "bigint", "cluster": "text", "namespace": "text", "pod": "text", "pod_uid": "text",
    "resource": "text", "quantity": "int", "device_fraction": "numeric(13,12)", "accelerator": "text", "node": "text",
    "started_at": "timestamptz", "ended_at": "timestamptz", "observed_until": "timestamptz", "end_reason": "text",
    "workload_kind": "text", "workload_name": "text", "queue": "text", "site": "text", "facts": "jsonb", "from_file": "bool",
    "end_rule": "text", "end_estimated": "bool", "end_earliest": "timestamptz", "end_latest": "timestamptz",
    "end_reconstructed": "bool", "reconstructed_from": "text",
}  # fmt: skip
CAPACITY: Final[Mapping[str, str]] = {
    "cluster": "text", "node": "text", "accelerator": "text", "resource": "text", "quantity": "int", "start": "timestamptz",
    "until": "timestamptz", "condition": "text",
}  # fmt: skip
SAMPLE: Final[Mapping[str, str]] = {
    "cluster": "text", "pod_uid": "text", "workload": "text", "start": "timestamptz", '"end"': "timestamptz",
    "workload_kind": "text", "gpu_seconds": "numeric(24,6)", "mfu": "numeric(21,20)", "hfu": "numeric(21,20)",
    "dtype": "text", "method": "text", "coverage": "numeric(21,20)", "reason": "text", "epoch": "int",
}  # fmt: skip
"""Columns of each table that its hash covers, with their types. A column added later is in no existing hash: a migration
has to rewrite all hashes to cover it.
"""

TOKEN_COUNTS: Final = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens", "reasoning_output_tokens",
)  # fmt: skip
"""Columns of the counts of a token record."""
DETAIL: Final[Mapping[str, str]] = {
    "key": "uuid", "time": "timestamptz", "dimension": "int", "epoch": "int", **dict.fromkeys(TOKEN_COUNTS, "bigint"),
    **dict.fromkeys(DETAIL_TEXTS, "text"), **dict.fromkeys(DETAIL_COUNTS, "bigint"), "tag_set": "int",
}  # fmt: skip
"""Columns of `token_detail` that its hash covers."""


def content_sha256(columns: Mapping[str, str], row: str, changed: Mapping[str, str] | None = None) -> str:
    """Return SQL of a row's hash; `row`: alias of the table or of the values to store; `changed`: other SQL by column.

    >>> content_sha256({"node": "text", "until": "timestamptz"}, "c", {"until": "%s"})
    'sha256(record_send(ROW(c.node::text, (%s)::timestamptz)))'
    """
    parts = (
        f"({changed[name]})::{kind}" if changed and name in changed else f"{row}.{name}::{kind}"
        for name, kind in columns.items()
    )
    return f"sha256(record_send(ROW({', '.join(parts)})))"
