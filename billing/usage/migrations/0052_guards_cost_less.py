"""The pieces of allocations are guarded statement by statement, and a change of an allocation is not hashed once more.

Row by row the guard of pieces cost a report of open allocations a fifth of its time. Whether a hash is the right one
`period_report`, `period_close` and `period_verify` ask; the trigger asks whether the change brings one.
"""

import importlib

from django.db import migrations

from billing.tenancy.guards import refused_where

BEFORE = importlib.import_module("billing.usage.migrations.0047_stored_usage_stays")
HASHED = importlib.import_module("billing.usage.migrations.0048_contents")
CHANGING = {"gpuallocation": (*BEFORE.TIMES, *BEFORE.LEARNED), "nodecapacity": ("until",)}
NAME = "change_brings_its_hash"

SPANS = """
DROP TRIGGER span_of_a_close_stays ON usage_allocationspan;
CREATE OR REPLACE FUNCTION usage_span_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    present integer := (SELECT coalesce(max(ordinal), 0) FROM usage_closedwindow);
    billed integer := (SELECT max(ordinal) FROM usage_closedwindow WHERE NOT prepared);
    refused boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        refused := EXISTS (
            SELECT 1 FROM gone o JOIN usage_closedwindow w ON NOT w.prepared AND w.start < o.until AND w."end" > o.start
            WHERE o.epoch < billed);
    ELSE
        refused := EXISTS (
            SELECT 1 FROM gone o JOIN come n ON n.id = o.id WHERE o.epoch < present AND n.until <> o.until
            AND (n.until > o.until OR o.epoch < billed AND EXISTS (
                SELECT 1 FROM usage_closedwindow w WHERE NOT w.prepared AND w.start < o.until AND w."end" > n.until)));
    END IF;
    IF refused THEN
        RAISE EXCEPTION '% of %: what a close has billed of an allocation stays', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER cut_span_of_a_close_stays AFTER UPDATE ON usage_allocationspan
    REFERENCING OLD TABLE AS gone NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION usage_span_guard();
CREATE TRIGGER span_of_a_close_stays AFTER DELETE ON usage_allocationspan
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION usage_span_guard();
"""
ROW_BY_ROW = """
DROP TRIGGER span_of_a_close_stays ON usage_allocationspan;
DROP TRIGGER cut_span_of_a_close_stays ON usage_allocationspan;
DROP FUNCTION usage_span_guard();
""" + BEFORE.SPANS


def changed(columns: tuple[str, ...]) -> str:
    """Whether an UPDATE changes any of these."""
    return f"({', '.join(f'NEW.{name}' for name in columns)}) IS DISTINCT FROM ({', '.join(f'OLD.{name}' for name in columns)})"


def hashed_anew(table: str) -> migrations.RunSQL:
    """The trigger of 0048, which computed the hash, goes."""
    made = refused_where(
        f"usage_{table}", NAME, [*HASHED.HASHES[table], "content_sha256"],
        f"NEW.content_sha256 <> {HASHED.hash_of(table, 'NEW')}", BEFORE.NEVER,
    )
    return migrations.RunSQL(made.reverse_sql, made.sql)


class Migration(migrations.Migration):
    dependencies = [("usage", "0051_token_files")]
    operations = [
        migrations.RunSQL(SPANS, ROW_BY_ROW),
        *(hashed_anew(table) for table in CHANGING),
        *(
            refused_where(
                f"usage_{table}", NAME, [*columns, "content_sha256"],
                f"({changed(columns)}) <> (NEW.content_sha256 <> OLD.content_sha256)", BEFORE.NEVER,
            )
            for table, columns in CHANGING.items()
        ),
    ]  # fmt: skip
