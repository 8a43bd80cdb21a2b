-- The ledger of token records in parts by key (ADR 0039). Keys of time-ordered ids begin with their milliseconds, so that those
-- of a month, in UTC, are a range:
--
--   token_entry                 every key once, for ever
--     token_entry_other         DEFAULT: keys that tell no time
--     token_entry_timed         keys of 2020 to 2049, and the few of the others that fall among them
--       token_entry_2026_10     a month
--       token_entry_unmade      DEFAULT: months without a part
--
-- There are two levels because a new part has PostgreSQL read all of the DEFAULT beside it under a lock: the small one only.

CREATE OR REPLACE FUNCTION token_first_key(instant timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN rpad(lpad(to_hex((extract(epoch FROM instant) * 1000)::bigint), 12, '0'), 32, '0')::uuid;

-- Who reads the ledger may read a part by its name, as `pg_dump` does.
CREATE OR REPLACE FUNCTION token_part_read(part regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    reader regrole;
BEGIN
    FOR reader IN SELECT a.grantee::regrole FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'token_entry'::regclass AND a.privilege_type = 'SELECT' AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT SELECT ON %s TO %s', part, reader);
    END LOOP;
END $$;

-- Statement triggers are not those of the parts, row triggers are.
CREATE OR REPLACE FUNCTION token_part_guard(part regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM suanpan_never_emptied(part, 'reported usage is never changed');
    EXECUTE format('CREATE OR REPLACE TRIGGER only_one_store_takes BEFORE INSERT ON %s '
                   'FOR EACH STATEMENT EXECUTE FUNCTION token_entry_is_taken_here()', part);
    PERFORM token_part_read(part);
END $$;
CREATE OR REPLACE FUNCTION token_ledger_guard(ledger regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON %s '
                   'FOR EACH ROW EXECUTE FUNCTION suanpan_refuse(%L)', ledger, 'reported usage is never changed');
    EXECUTE format('CREATE OR REPLACE TRIGGER only_sealed_rows_leave BEFORE DELETE ON %s '
                   'FOR EACH ROW EXECUTE FUNCTION token_entry_leaves()', ledger);
    PERFORM token_part_guard(ledger);
    PERFORM token_part_guard(relid) FROM pg_partition_tree(ledger);
END $$;

-- An empty ledger in parts, beside the one that there is.
CREATE OR REPLACE FUNCTION token_ledger_make() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bounds text := format('FROM (%L) TO (%L)', token_first_key('2020-01-01 00:00Z'), token_first_key('2050-01-01 00:00Z'));
BEGIN
    CREATE TABLE token_entry_new (LIKE token_entry INCLUDING COMMENTS, PRIMARY KEY (key)) PARTITION BY RANGE (key);
    CREATE TABLE token_entry_other PARTITION OF token_entry_new DEFAULT;
    EXECUTE format('CREATE TABLE token_entry_timed PARTITION OF token_entry_new FOR VALUES %s PARTITION BY RANGE (key)', bounds);
    CREATE TABLE token_entry_unmade PARTITION OF token_entry_timed DEFAULT;
    -- Of several clusters of times in a range of pages each is kept: rows that were copied lie among newer ones.
    EXECUTE format('CREATE INDEX %I ON %I USING brin (time timestamptz_minmax_multi_ops) WITH (pages_per_range = 32)',
                   'token_entry_new_time', 'token_entry_new');
    PERFORM token_ledger_guard('token_entry_new');
END $$;

-- The ledger in parts takes the name and the rights of the one before, which is left under another name.
CREATE OR REPLACE FUNCTION token_ledger_exchange() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    records text := pg_get_viewdef('token_event'::regclass);
    role_right record;
BEGIN
    ALTER TABLE token_entry RENAME TO token_entry_before;
    ALTER INDEX token_entry_pkey RENAME TO token_entry_before_pkey;
    ALTER INDEX token_entry_time RENAME TO token_entry_before_time;
    ALTER TABLE token_entry_new RENAME TO token_entry;
    ALTER INDEX token_entry_new_pkey RENAME TO token_entry_pkey;
    ALTER INDEX token_entry_new_time RENAME TO token_entry_time;
    EXECUTE 'CREATE OR REPLACE VIEW token_event AS ' || records;
    FOR role_right IN SELECT a.grantee::regrole AS grantee, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
                      WHERE c.oid = 'token_entry_before'::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
        EXECUTE format('GRANT %s ON token_entry TO %s', role_right.privilege_type, role_right.grantee);
    END LOOP;
END $$;

-- A part for a month, given by its first day; false where it is there. Keys of the month that the DEFAULT has already go into
-- it: those that tell no time are in every month. NULL where moving them, or looking for them, would keep ingest waiting.
CREATE OR REPLACE FUNCTION token_month_make(month date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    part text := to_char(month, '"token_entry_"YYYY_MM');
    low uuid := token_first_key(month::timestamp AT TIME ZONE 'UTC');
    high uuid := token_first_key((month + interval '1 month') AT TIME ZONE 'UTC');
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY token_entry_timed IN SHARE UPDATE EXCLUSIVE MODE;
    LOCK TABLE token_entry_unmade IN ACCESS EXCLUSIVE MODE;
    IF to_regclass(part) IS NOT NULL THEN
        RETURN false;
    ELSIF pg_relation_size('token_entry_unmade') > 1000000000
          OR (SELECT count(*) FROM (SELECT FROM token_entry_unmade WHERE key >= low AND key < high LIMIT 100001) x) > 100000 THEN
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE token_entry_unmade INCLUDING ALL EXCLUDING CONSTRAINTS)', part);
    EXECUTE format('INSERT INTO %I SELECT * FROM token_entry_unmade WHERE key >= $1 AND key < $2', part) USING low, high;
    ALTER TABLE token_entry_unmade DISABLE TRIGGER only_sealed_rows_leave;
    DELETE FROM token_entry_unmade WHERE key >= low AND key < high;
    ALTER TABLE token_entry_unmade ENABLE TRIGGER only_sealed_rows_leave;
    EXECUTE format('ALTER TABLE token_entry_timed ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, low, high);
    PERFORM token_part_guard(part::regclass);
    RETURN true;
END $$;

-- Parts for last month and the next three, for the application too, which makes no tables. Gives the months for which there is
-- none, because somebody read the ledger for so long, or the DEFAULT is too large: their records are there.
CREATE OR REPLACE FUNCTION token_months_make() RETURNS text[] LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    month date;
    missing text[] := '{}';
BEGIN
    IF to_regclass('token_entry_timed') IS NULL THEN
        RETURN missing;
    END IF;
    FOR month IN SELECT generate_series(this - interval '1 month', this + interval '3 months', interval '1 month')::date
                 FROM date_trunc('month', now() AT TIME ZONE 'UTC') AS this LOOP
        BEGIN
            IF token_month_make(month) IS NULL THEN
                missing := missing || to_char(month, 'YYYY-MM');
            END IF;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            missing := missing || to_char(month, 'YYYY-MM');
        END;
    END LOOP;
    RETURN missing;
END $$;

-- What is stored under these keys, as ingest compares it. Plans are kept, since one for a thousand keys costs more than to look
-- them up; and a kept plan reads only the parts of which its conditions tell: the one without time, the months of now, and for
-- keys of other months those from the first to the last of them. It goes by the index also where a part has few rows when it is
-- made, for it is still used when they are millions.
CREATE OR REPLACE FUNCTION token_known(keys uuid[]) RETURNS TABLE (
    key bytea, dimension integer, "time" bytea, rest text, input_tokens integer, cache_read_input_tokens integer,
    cache_creation_input_tokens integer, output_tokens smallint, reasoning_output_tokens smallint
) LANGUAGE plpgsql STRICT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    low uuid := keys[1];
    high uuid := low;
    others uuid[];
BEGIN
    IF cardinality(keys) > 1 THEN
        low := token_first_key(now() - interval '35 days');
        high := token_first_key(now() + interval '1 day');
        RETURN QUERY
            SELECT uuid_send(e.key), e.dimension, timestamptz_send(e.time), e.rest, e.input_tokens, e.cache_read_input_tokens,
                   e.cache_creation_input_tokens, e.output_tokens, e.reasoning_output_tokens
            FROM token_entry e WHERE e.key = ANY (keys)
                 AND (e.key < token_first_key('2020-01-01 00:00Z') OR e.key >= token_first_key('2050-01-01 00:00Z'));
        others := ARRAY(
            SELECT k FROM unnest(keys) AS k
            WHERE k >= token_first_key('2020-01-01 00:00Z') AND k < token_first_key('2050-01-01 00:00Z')
                  AND (k < low OR k > high)
            ORDER BY k);
    END IF;
    LOOP
        RETURN QUERY
            SELECT uuid_send(e.key), e.dimension, timestamptz_send(e.time), e.rest, e.input_tokens, e.cache_read_input_tokens,
                   e.cache_creation_input_tokens, e.output_tokens, e.reasoning_output_tokens
            FROM token_entry e WHERE e.key = ANY (keys) AND e.key >= low AND e.key <= high;
        EXIT WHEN coalesce(cardinality(others), 0) = 0;
        keys := others;
        low := keys[1];
        high := keys[cardinality(keys)];
        others := '{}';
    END LOOP;
END $$;

-- Rows that come into a ledger, or a part, beside which another is filled go there too: by statement and by row.
CREATE OR REPLACE FUNCTION token_rows_follow() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_LEVEL = 'ROW' THEN
        EXECUTE format('INSERT INTO %I SELECT ($1).* ON CONFLICT DO NOTHING', TG_ARGV[0]) USING NEW;
    ELSE
        EXECUTE format('INSERT INTO %I SELECT * FROM come ORDER BY key ON CONFLICT DO NOTHING', TG_ARGV[0]);
    END IF;
    RETURN NULL;
END $$;

-- An empty ledger is in parts from now on; for a filled one there is `usage_partition`.
DO $$
BEGIN
    IF to_regclass('token_entry_timed') IS NULL AND NOT EXISTS (SELECT FROM token_entry) THEN
        PERFORM set_config('lock_timeout', '10s', true);
        LOCK TABLE token_entry IN ACCESS EXCLUSIVE MODE;
        IF NOT EXISTS (SELECT FROM token_entry) THEN
            PERFORM token_ledger_make();
            PERFORM token_ledger_exchange();
            DROP TABLE token_entry_before;
        END IF;
    END IF;
END $$;
SELECT token_ledger_guard('token_entry');
SELECT token_months_make();
