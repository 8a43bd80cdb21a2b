"""Stored usage is refused for UPDATE, DELETE and TRUNCATE by the database itself, but for what its services make of it.

What may still happen, and nothing else:

- an allocation that is open is seen further on, or ends; an end that was estimated, or cut at a change of share, gives way
  to a better one; a reconstructed end is dropped where the pod was seen after it. What was reconstructed takes the facts
  of who watched, and those are the only facts that ever change;
- the piece of an allocation that the present epoch knows follows it; pieces of earlier epochs are cut in time that no
  close has billed;
- capacity is extended, a watermark goes forward;
- deltas of tokens are folded: whoever deletes them adds them to the roll-ups, which nobody writes otherwise;
- stretches of numbers are joined: what is deleted is covered by what is there;
- an allocation of unknown share is seen further on, ends, or is known;
- a quarantined record is counted again, dismissed or taken in.
"""

from django.db import migrations

from billing.tenancy.guards import appended_only, changes_only, kept, never_emptied, refused_where

NEVER = "reported usage is never changed"
COUNTS = (
    "requests", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip
TIMES = (
    "ended_at", "observed_until", "end_reason", "end_rule", "end_estimated", "end_earliest", "end_latest",
    "end_reconstructed",
)  # fmt: skip
LEARNED = (
    "identity", "pod", "node", "workload_kind", "workload_name", "queue", "site", "facts", "reconstructed_from",
)  # fmt: skip
TIMES_FOLLOW = f"""
    ({', '.join(f'NEW.{name}' for name in TIMES)}) IS DISTINCT FROM ({', '.join(f'OLD.{name}' for name in TIMES)})
    AND NOT CASE
        WHEN OLD.ended_at IS NULL AND NEW.ended_at IS NULL THEN NEW.observed_until >= OLD.observed_until
        WHEN OLD.ended_at IS NULL THEN NEW.observed_until = NEW.ended_at
        WHEN NEW.ended_at IS NULL THEN OLD.end_reconstructed AND NEW.observed_until > OLD.ended_at
        ELSE NEW.observed_until = NEW.ended_at AND (
            OLD.end_estimated
            OR NEW.ended_at <= OLD.ended_at AND 'share of a claim changed' IN (OLD.end_rule, NEW.end_rule)
            OR OLD.end_reconstructed AND (NEW.ended_at, NEW.end_reason) = (OLD.ended_at, OLD.end_reason))
    END"""
FACTS_FOLLOW = f"""
    ({', '.join(f'NEW.{name}' for name in LEARNED)}) IS DISTINCT FROM ({', '.join(f'OLD.{name}' for name in LEARNED)})
    AND NOT (OLD.reconstructed_from <> '' AND NEW.reconstructed_from = '')"""
DECISION = ("status", "resolved_by", "resolution", "resolved_at", "corrected")
DECIDED_ONCE = f"""
    ({', '.join(f'NEW.{name}' for name in DECISION)}) IS DISTINCT FROM ({', '.join(f'OLD.{name}' for name in DECISION)})
    AND NOT (NEW.status = 'dismissed' AND OLD.status <> 'replayed' AND NEW.corrected = OLD.corrected
             OR NEW.status = 'replayed' AND OLD.status = 'open')"""

KEPT = ("accelerator", "why", "until", "ended", "record", "settled")
KNOWN_ONCE = f"""
    OLD.settled = 'known' OR OLD.ended AND ({', '.join(f'NEW.{name}' for name in KEPT[:-1])})
                                           IS DISTINCT FROM ({', '.join(f'OLD.{name}' for name in KEPT[:-1])})
    OR NEW.until < OLD.until AND NOT NEW.ended"""

SPANS = """
CREATE FUNCTION usage_span_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    present integer := (SELECT coalesce(max(ordinal), 0) FROM usage_closedwindow);
    changed_from timestamptz := CASE TG_OP WHEN 'DELETE' THEN OLD.start ELSE least(OLD.until, NEW.until) END;
BEGIN
    IF OLD.epoch < present AND (
        TG_OP = 'UPDATE' AND NEW.until > OLD.until
        OR OLD.epoch < (SELECT max(ordinal) FROM usage_closedwindow WHERE NOT prepared)
           AND EXISTS (SELECT 1 FROM usage_closedwindow w
                       WHERE NOT w.prepared AND w.start < OLD.until AND w."end" > changed_from)
    ) THEN
        RAISE EXCEPTION '% of %: what a close has billed of an allocation stays', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER span_of_a_close_stays BEFORE DELETE OR UPDATE OF until ON usage_allocationspan
    FOR EACH ROW EXECUTE FUNCTION usage_span_guard();
"""
NO_SPANS = "DROP TRIGGER span_of_a_close_stays ON usage_allocationspan; DROP FUNCTION usage_span_guard();"

ENDS = """
CREATE FUNCTION usage_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.epoch < (SELECT coalesce(max(ordinal), 0) FROM usage_closedwindow) THEN
        RAISE EXCEPTION '% of %: what a close knew of an end stays', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER end_of_a_close_stays BEFORE UPDATE OF ended_at, end_reason ON usage_allocationend
    FOR EACH ROW EXECUTE FUNCTION usage_end_guard();
"""
NO_ENDS = "DROP TRIGGER end_of_a_close_stays ON usage_allocationend; DROP FUNCTION usage_end_guard();"

SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)


def added(table: str) -> str:
    """What a row of a roll-up becomes with another of its kind."""
    return ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in COUNTS)


FOLD = f"""
CREATE FUNCTION token_fold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_hour SELECT hour, dimension, epoch, {SUMS} FROM moved GROUP BY hour, dimension, epoch
        ON CONFLICT (hour, dimension, epoch) DO UPDATE SET {added('token_hour')};
    INSERT INTO token_day SELECT date_trunc('day', hour, 'UTC') AS day, dimension, epoch, {SUMS} FROM moved GROUP BY 1, 2, 3
        ON CONFLICT (day, dimension, epoch) DO UPDATE SET {added('token_day')};
    RETURN NULL;
END $$;
CREATE TRIGGER what_is_deleted_is_folded AFTER DELETE ON token_hour_delta REFERENCING OLD TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION token_fold();
CREATE TRIGGER rows_stay BEFORE UPDATE ON token_hour_delta
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('{NEVER}');
""" + "".join(
    f"""
CREATE TRIGGER only_folding_writes BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION suanpan_refuse('only folding writes a roll-up');
"""
    for table in ("token_hour", "token_day")
)
NO_FOLD = """
DROP TRIGGER only_folding_writes ON token_day;
DROP TRIGGER only_folding_writes ON token_hour;
DROP TRIGGER rows_stay ON token_hour_delta;
DROP TRIGGER what_is_deleted_is_folded ON token_hour_delta;
DROP FUNCTION token_fold();
"""

SEQUENCES = f"""
CREATE FUNCTION token_sequence_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g WHERE NOT EXISTS (
        SELECT 1 FROM token_sequence s
        WHERE s.source = g.source AND s.run = g.run AND s.first <= g.first AND s.last >= g.last)) THEN
        RAISE EXCEPTION 'DELETE of token_sequence: numbers that have arrived stay' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER numbers_stay AFTER DELETE ON token_sequence REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION token_sequence_guard();
CREATE TRIGGER rows_stay BEFORE UPDATE ON token_sequence
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('{NEVER}');
"""
NO_SEQUENCES = """
DROP TRIGGER rows_stay ON token_sequence;
DROP TRIGGER numbers_stay ON token_sequence;
DROP FUNCTION token_sequence_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0030_unknown_shares"), ("tenancy", "0015_columns_stay")]
    operations = [
        changes_only("usage_gpuallocation", (*TIMES, *LEARNED), NEVER),
        refused_where("usage_gpuallocation", "times_follow_reports", TIMES, TIMES_FOLLOW, NEVER),
        refused_where("usage_gpuallocation", "facts_follow_who_watched", LEARNED, FACTS_FOLLOW, NEVER),
        kept("usage_gpuallocation", NEVER),
        changes_only("usage_allocationspan", ("until",), NEVER),
        migrations.RunSQL(SPANS, NO_SPANS),
        never_emptied("usage_allocationspan", NEVER),
        changes_only("usage_allocationend", ("ended_at", "end_reason"), NEVER),
        migrations.RunSQL(ENDS, NO_ENDS),
        kept("usage_allocationend", NEVER),
        changes_only("usage_nodecapacity", ("until",), NEVER),
        refused_where("usage_nodecapacity", "capacity_is_extended", ("until",), "NEW.until < OLD.until", NEVER),
        kept("usage_nodecapacity", NEVER),
        changes_only("usage_agentwatermark", ("watermark", "reported_at"), "a watermark goes forward"),
        refused_where(
            "usage_agentwatermark", "watermark_goes_forward", ("watermark",), "NEW.watermark < OLD.watermark",
            "a watermark goes forward",
        ),
        kept("usage_agentwatermark", "a watermark goes forward"),
        *(
            appended_only(f"usage_{table}", NEVER)
            for table in ("efficiencysample", "agentnote", "watchnote", "clusterscan", "sharedeclaration")
        ),
        changes_only("usage_unknownshare", KEPT, NEVER),
        refused_where("usage_unknownshare", "known_once", KEPT, KNOWN_ONCE, NEVER),
        kept("usage_unknownshare", NEVER),
        changes_only(
            "usage_quarantinedrecord", ("times_received", *DECISION), "a record in quarantine stays as it came"
        ),
        refused_where(
            "usage_quarantinedrecord", "decided_once", DECISION, DECIDED_ONCE, "a record is taken in once or never"
        ),
        refused_where(
            "usage_quarantinedrecord", "received_again", ("times_received",), "NEW.times_received < OLD.times_received",
            "a record in quarantine stays as it came",
        ),
        kept("usage_quarantinedrecord", "a record in quarantine stays as it came"),
        never_emptied("usage_enginereading", "what was counted is never changed"),
        never_emptied("usage_closedwindow", "a close stays as it was"),
        never_emptied("token_entry", NEVER),
        never_emptied("token_dimension", "events refer to it"),
        migrations.RunSQL(FOLD, NO_FOLD),
        *(never_emptied(f"token_{table}", NEVER) for table in ("hour_delta", "hour", "day", "sequence")),
        migrations.RunSQL(SEQUENCES, NO_SEQUENCES),
    ]  # fmt: skip
