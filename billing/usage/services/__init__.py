"""Writes of reported usage."""

from billing.usage.services.allocations import allocations_ingest
from billing.usage.services.capacity import capacity_ingest
from billing.usage.services.capacity_type_rules import capacity_type_rule_put
from billing.usage.services.efficiency import efficiency_ingest
from billing.usage.services.engines import engine_readings_ingest
from billing.usage.services.outcome import IngestOutcome, Reporter
from billing.usage.services.quarantine import quarantine_dismiss
from billing.usage.services.replay import ReplayError, quarantine_decide_all, quarantine_replay
from billing.usage.services.sequences import sequences_fold
from billing.usage.services.share_declarations import (
    DeclarationError,
    no_accelerators_note,
    share_correct,
    share_declare,
)
from billing.usage.services.tags import source_tag_rules, tag_rules_put
from billing.usage.services.tier_rules import tier_rule_put
from billing.usage.services.token_batch import token_batch
from billing.usage.services.tokens import LoopWriter, batch_ingest, token_files_note, tokens_ingest
from billing.usage.services.watermarks import (
    Scan,
    Watched,
    agent_notes_add,
    cluster_scans_add,
    watch_notes_add,
    watermark_advance,
)
from billing.usage.store.parts import months_make
from billing.usage.store.records import rollups_fold
