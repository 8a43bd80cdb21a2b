"""`token_take`: a small group of token records in one statement and one round trip, with the same rules as COPY.

It enters the epoch, inserts what is new in the order of the keys, adds the sums by hour and names the keys that were
known. Whoever calls it decides what becomes of those. Counts have to fit their columns: sums are taken from them.
"""

from django.db import migrations

USAGE_LOCK = 0x5350414E

FORWARD = f"""
CREATE FUNCTION token_take(
    keys uuid[], times timestamptz[], dimensions integer[], inputs integer[], cache_reads integer[],
    cache_creations integer[], outputs integer[], reasonings integer[], ids text[], rests text[]
) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    this_epoch integer;
    fresh_keys uuid[];
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_advisory_xact_lock_shared({USAGE_LOCK});
    SELECT coalesce(max(ordinal), 0) INTO this_epoch FROM usage_closedwindow;
    WITH fresh AS (
        INSERT INTO token_entry (key, time, dimension, input_tokens, cache_read_input_tokens,
                                 cache_creation_input_tokens, output_tokens, reasoning_output_tokens, epoch, id, rest)
        SELECT r.key, r.time, r.dimension, r.i, r.cr, r.cc, r.o, r.ro, this_epoch, r.id, r.rest
        FROM unnest(keys, times, dimensions, inputs, cache_reads, cache_creations, outputs, reasonings, ids, rests)
             AS r (key, time, dimension, i, cr, cc, o, ro, id, rest)
        ORDER BY r.key
        ON CONFLICT (key) DO NOTHING
        RETURNING *
    ), added AS (
        INSERT INTO token_hour_delta
        SELECT date_trunc('hour', time, 'UTC'), dimension, this_epoch, count(*), sum(input_tokens),
               sum(cache_read_input_tokens), sum(cache_creation_input_tokens), sum(output_tokens),
               sum(reasoning_output_tokens)
        FROM fresh GROUP BY 1, 2
    )
    SELECT coalesce(array_agg(key), ARRAY[]::uuid[]) INTO fresh_keys FROM fresh;
    IF cardinality(fresh_keys) = cardinality(keys) THEN
        RETURN ARRAY[]::uuid[];
    END IF;
    RETURN ARRAY(SELECT k FROM unnest(keys) k WHERE k <> ALL (fresh_keys));
END $$;
"""
REVERSE = """
DROP FUNCTION token_take(uuid[], timestamptz[], integer[], integer[], integer[], integer[], integer[], integer[],
                         text[], text[]);
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0008_one_row_per_key")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
