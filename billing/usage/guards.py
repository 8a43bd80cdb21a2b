"""Which columns of stored usage may change at all; every other the database refuses, with TRUNCATE and nearly all DELETE.

`sql/guards.sql` says when these may change, and how. Whoever adds a table or a column to usage declares it here and guards
it there; a test compares this list with the database.
"""

from collections.abc import Mapping
from typing import Final

TIMES: Final = frozenset({
    "ended_at", "observed_until", "end_reason", "end_rule", "end_estimated", "end_earliest", "end_latest",
    "end_reconstructed",
})  # fmt: skip
"""How far an allocation is known: follows its reports."""
LEARNED: Final = frozenset({
    "identity", "pod", "node", "workload_kind", "workload_name", "queue", "site", "facts", "reconstructed_from",
})  # fmt: skip
"""What a reconstruction could not know: written once more, by who watched."""
NOTHING: Final = frozenset[str]()

CHANGING: Final[Mapping[str, frozenset[str]]] = {
    "usage_gpuallocation": TIMES | LEARNED | {"content_sha256"},
    "usage_allocationrevision": frozenset({"until"}),
    "usage_allocationinterruption": frozenset({"ended_at", "end_reason"}),
    "usage_nodecapacity": frozenset({"until", "content_sha256"}),
    "usage_efficiencysample": NOTHING,
    "usage_acceptedrows": NOTHING,
    "usage_enginereading": NOTHING,
    "usage_agentwatermark": frozenset({"watermark", "watched_since", "reported_at"}),
    "usage_tokenfile": frozenset({"until"}),
    "usage_agentdiagnostic": NOTHING,
    "usage_coveragenote": NOTHING,
    "usage_clusterscan": NOTHING,
    "usage_unknownshare": frozenset({"accelerator", "why", "until", "ended", "record", "settled"}),
    "usage_sharedeclaration": NOTHING,
    "usage_close": frozenset({"withdrawn_at"}),
    "usage_quarantinedrecord": frozenset({
        "times_received", "status", "resolved_by", "resolution", "resolved_at", "corrected",
    }),
    "token_dimension": NOTHING,
    "token_entry": NOTHING,
    "token_hour_delta": NOTHING,
    "token_hour": NOTHING,
    "token_day": NOTHING,
    "token_sequence": NOTHING,
}  # fmt: skip
