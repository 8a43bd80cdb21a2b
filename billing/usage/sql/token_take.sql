-- What is written of a few records, and of which timeline the numbers must be that they refer to.

-- Numbers of token_dimension, which writers remember, hold on the timeline on which they were read: a promotion, or a restore
-- to an instant, may lose some of them and begins another. A database that was read in from a backup has another table.
CREATE OR REPLACE FUNCTION token_timeline() RETURNS text LANGUAGE sql VOLATILE
    RETURN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || 'token_dimension'::regclass::oid;

-- A small batch in one round trip: locks, the epoch, rows and the delta. Returns the keys that were there already. Writers
-- of the release before give no timeline.
DROP FUNCTION IF EXISTS token_take(uuid[], timestamptz[], integer[], integer[], integer[], integer[], integer[], integer[],
                                   text[], text[]);
CREATE OR REPLACE FUNCTION token_take(
    keys uuid[], times timestamptz[], dimensions integer[], inputs integer[], cache_reads integer[],
    cache_creations integer[], outputs integer[], reasonings integer[], ids text[], rests text[],
    timeline text DEFAULT NULL
) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    this_epoch integer;
    fresh_keys uuid[];
    some_left boolean;
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF timeline <> token_timeline() THEN
        RAISE EXCEPTION 'numbers of timeline %, but this is %', timeline, token_timeline()
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(1397768526);
    SELECT coalesce(max(close_seq), 0), EXISTS (SELECT 1 FROM token_sealed) INTO this_epoch, some_left FROM usage_close;
    IF cardinality(keys) = 1 THEN  -- the usual report of one request: a statement for any number takes twice as long
        IF some_left AND token_sealed_entry(keys[1]) IS NOT NULL THEN
            RETURN keys;
        END IF;
        INSERT INTO token_entry (key, time, dimension, input_tokens, cache_read_input_tokens,
                                 cache_creation_input_tokens, output_tokens, reasoning_output_tokens, epoch, id, rest)
        VALUES (keys[1], times[1], dimensions[1], inputs[1], cache_reads[1], cache_creations[1], outputs[1],
                reasonings[1], this_epoch, ids[1], rests[1])
        ON CONFLICT (key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN keys;
        END IF;
        INSERT INTO token_hour_delta VALUES (date_trunc('hour', times[1], 'UTC'), dimensions[1], this_epoch, 1, inputs[1],
                                             cache_reads[1], cache_creations[1], outputs[1], reasonings[1]);
        RETURN ARRAY[]::uuid[];
    END IF;
    WITH fresh AS (
        INSERT INTO token_entry (key, time, dimension, input_tokens, cache_read_input_tokens,
                                 cache_creation_input_tokens, output_tokens, reasoning_output_tokens, epoch, id, rest)
        SELECT r.key, r.time, r.dimension, r.i, r.cr, r.cc, r.o, r.ro, this_epoch, r.id, r.rest
        FROM unnest(keys, times, dimensions, inputs, cache_reads, cache_creations, outputs, reasonings, ids, rests)
             AS r (key, time, dimension, i, cr, cc, o, ro, id, rest)
        WHERE NOT some_left OR token_sealed_entry(r.key) IS NULL
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
