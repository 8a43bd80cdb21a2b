-- Every key once, for ever: of records that are in the ledger, and of those that left it for an archive (ADR 0037).

CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON token_entry
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
SELECT suanpan_never_emptied('token_entry', 'reported usage is never changed');

-- Records that left for an archive (ADR 0037), whose keys go on refusing repeats. Each is 32 bytes: key, microseconds since
-- 2000, and the first half of the hash of its content that the archive has. Many are in a row, which a hash of the key finds:
-- a row for each would cost nearly what the record does.
CREATE TABLE IF NOT EXISTS token_sealed (
    bucket integer PRIMARY KEY,
    entries bytea NOT NULL
);
ALTER TABLE token_sealed ALTER COLUMN entries SET STORAGE EXTERNAL;
-- The months whose records, as known before close `before`, are in a folder of an archive, or on their way there or back.
CREATE TABLE IF NOT EXISTS token_archive (
    month text PRIMARY KEY,
    start timestamptz NOT NULL,
    "end" timestamptz NOT NULL,
    before integer NOT NULL,
    records bigint NOT NULL,
    folder text NOT NULL
);
CREATE OR REPLACE FUNCTION token_sealed_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept bytea := CASE TG_OP WHEN 'UPDATE' THEN NEW.entries ELSE '' END;
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.bucket <> OLD.bucket OR length(kept) % 32 <> 0)
       OR substr(kept, 1, length(OLD.entries)) <> OLD.entries AND EXISTS (
          SELECT 1 FROM generate_series(1, length(OLD.entries), 32) AS n
          WHERE position(substr(OLD.entries, n, 32) IN kept) = 0 AND NOT EXISTS (
              SELECT 1 FROM token_entry WHERE key = encode(substr(OLD.entries, n, 16), 'hex')::uuid)) THEN
        RAISE EXCEPTION '% of token_sealed: a key that left stays until its record is back', TG_OP
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'UPDATE' THEN NEW ELSE OLD END;
END $$;
CREATE OR REPLACE TRIGGER keys_stay BEFORE UPDATE OR DELETE ON token_sealed
    FOR EACH ROW EXECUTE FUNCTION token_sealed_guard();
SELECT suanpan_never_emptied('token_sealed', 'a key that left stays until its record is back');
CREATE OR REPLACE FUNCTION token_archive_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.records <> (SELECT count(*) FROM token_entry
                       WHERE time >= OLD.start AND time < OLD."end" AND epoch < OLD.before) THEN
        RAISE EXCEPTION 'DELETE of token_archive: records of % are still away', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER until_all_are_back BEFORE DELETE ON token_archive
    FOR EACH ROW EXECUTE FUNCTION token_archive_guard();
CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON token_archive
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('where records are is never changed');
SELECT suanpan_never_emptied('token_archive', 'where records are is never changed');
CREATE OR REPLACE FUNCTION token_bucket(key uuid) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ('x' || left(encode(sha256(uuid_send(key)), 'hex'), 6))::bit(24)::integer;
-- What is kept of a record that left. Bytes of two neighbours that look like the key give a conflict, which people see.
CREATE OR REPLACE FUNCTION token_sealed_entry(wanted uuid) RETURNS bytea LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT substr(entries, position(uuid_send(wanted) IN entries), 32) FROM token_sealed
    WHERE bucket = token_bucket(wanted) AND position(uuid_send(wanted) IN entries) > 0
$$;
CREATE OR REPLACE FUNCTION token_entry_leaves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF token_sealed_entry(OLD.key) IS NULL THEN
        RAISE EXCEPTION 'DELETE of token_entry: reported usage is never changed' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER only_sealed_rows_leave BEFORE DELETE ON token_entry
    FOR EACH ROW EXECUTE FUNCTION token_entry_leaves();

-- A small batch in one round trip: locks, the epoch, rows and the delta. Returns the keys that were there already.
CREATE OR REPLACE FUNCTION token_take(
    keys uuid[], times timestamptz[], dimensions integer[], inputs integer[], cache_reads integer[],
    cache_creations integer[], outputs integer[], reasonings integer[], ids text[], rests text[]
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
