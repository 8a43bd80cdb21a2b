"""Numbers that sources give their token records, as stretches; a hole between two stretches is what never arrived.

Ingest appends a row for each unbroken stretch of a transaction; a folder joins rows that overlap or touch. Every reader
reads `token_sequence_island`, in which they are joined already.
"""

from django.db import migrations

FORWARD = """
CREATE TABLE token_sequence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL,
    run text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    first_time timestamptz NOT NULL,
    last_time timestamptz NOT NULL,
    CONSTRAINT a_stretch_ends_after_its_start CHECK (last >= first)
);
COMMENT ON TABLE token_sequence IS 'numbers first..last of a run of a source have arrived; the times are those of both records';

CREATE VIEW token_sequence_island AS
    WITH ordered AS (
        SELECT *, max(last) OVER (PARTITION BY source, run ORDER BY first, last, id
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
        FROM token_sequence
    ), marked AS (
        SELECT *, count(*) FILTER (WHERE reached IS NULL OR first > reached + 1)
                      OVER (PARTITION BY source, run ORDER BY first, last, id) AS island
        FROM ordered
    )
    SELECT source, run, min(first) AS first, max(last) AS last,
           (array_agg(first_time ORDER BY first, first_time))[1] AS first_time,
           (array_agg(last_time ORDER BY last DESC, last_time))[1] AS last_time,
           array_agg(id) AS pieces
    FROM marked GROUP BY source, run, island;
"""
REVERSE = "DROP VIEW token_sequence_island; DROP TABLE token_sequence;"


class Migration(migrations.Migration):
    dependencies = [("usage", "0013_agent_notes")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
