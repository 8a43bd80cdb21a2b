-- The token ledger: records, their roll-ups by hour and day, and the numbers that sources give them.
--
-- token_entry is a ledger of keys and the records at once. Its primary key is the key of (source, id), whatever the time of
-- the record and for ever, so that a retry that carries another time finds the row that is there. Records refer to
-- token_dimension without a foreign key, which would be checked for every row: a dimension is written in the transaction of
-- its first record or before, and the table only grows.

CREATE OR REPLACE FUNCTION microseconds(span interval) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (extract(epoch FROM span) * 1000000)::bigint;

CREATE TABLE IF NOT EXISTS token_dimension (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    source text NOT NULL,
    consumer text NOT NULL,
    model text NOT NULL,
    site text,
    provider text,
    status text
);
SELECT suanpan_append_only('token_dimension', 'events refer to it');

-- 127 bytes with the index: counts take 32 and 16 bits, larger ones are in `rest` and the columns hold -1.
CREATE TABLE IF NOT EXISTS token_entry (
    key uuid PRIMARY KEY,
    time timestamptz NOT NULL,
    dimension integer NOT NULL,
    input_tokens integer NOT NULL,
    cache_read_input_tokens integer NOT NULL,
    cache_creation_input_tokens integer NOT NULL,
    output_tokens smallint NOT NULL,
    reasoning_output_tokens smallint NOT NULL,
    epoch smallint NOT NULL,
    id text NOT NULL,
    rest text NOT NULL
);
COMMENT ON COLUMN token_entry.id IS 'empty where the key tells it: see token_id';
COMMENT ON COLUMN token_entry.rest IS 'empty, or JSON: attributes; counts, where the columns hold -1';
CREATE INDEX IF NOT EXISTS token_entry_time ON token_entry USING brin (time) WITH (pages_per_range = 32);

-- The id of a record whose id is a UUID: the key under a mask of the source (`metering.token_keys`).
CREATE OR REPLACE FUNCTION token_id(key uuid, source text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (substr(k, 1, 16) || lpad(to_hex(('x' || substr(k, 17))::bit(64)::bigint # ('x' || m)::bit(64)::bigint), 16, '0')
           )::uuid::text
    FROM (SELECT replace(key::text, '-', '') AS k,
                 encode(substr(sha256(convert_to(source, 'UTF8')), 1, 8), 'hex') AS m) x
$$;

-- Join removal drops the dimension from every query that does not ask for the id.
CREATE OR REPLACE VIEW token_event AS
    SELECT e.key, e.time, e.dimension, e.epoch::integer AS epoch,
           CASE WHEN e.input_tokens >= 0 THEN e.input_tokens
                ELSE (e.rest::jsonb #>> '{counts,0}')::bigint END AS input_tokens,
           CASE WHEN e.cache_read_input_tokens >= 0 THEN e.cache_read_input_tokens
                ELSE (e.rest::jsonb #>> '{counts,1}')::bigint END AS cache_read_input_tokens,
           CASE WHEN e.cache_creation_input_tokens >= 0 THEN e.cache_creation_input_tokens
                ELSE (e.rest::jsonb #>> '{counts,2}')::bigint END AS cache_creation_input_tokens,
           CASE WHEN e.output_tokens >= 0 THEN e.output_tokens
                ELSE (e.rest::jsonb #>> '{counts,3}')::bigint END AS output_tokens,
           CASE WHEN e.reasoning_output_tokens >= 0 THEN e.reasoning_output_tokens
                ELSE (e.rest::jsonb #>> '{counts,4}')::bigint END AS reasoning_output_tokens,
           CASE WHEN e.id <> '' THEN e.id ELSE token_id(e.key, d.source) END AS id,
           CASE WHEN e.rest <> '' THEN nullif(e.rest::jsonb -> 'attributes', 'null') END AS attributes
    FROM token_entry e LEFT JOIN token_dimension d ON d.id = e.dimension;

-- Roll-ups. Each ingest transaction adds to token_hour_delta; a background task deletes deltas, which folds them into hours
-- and days. Readers read the views, which are both, so that sums agree with the records at every moment.
CREATE TABLE IF NOT EXISTS token_hour (
    hour timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL,
    PRIMARY KEY (hour, dimension, epoch)
);
CREATE TABLE IF NOT EXISTS token_day (
    day timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL,
    PRIMARY KEY (day, dimension, epoch)
);
CREATE INDEX IF NOT EXISTS token_day_epoch ON token_day (epoch, day);
CREATE TABLE IF NOT EXISTS token_hour_delta (
    hour timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL
);

CREATE OR REPLACE VIEW token_usage_hour AS
    SELECT * FROM token_hour UNION ALL SELECT * FROM token_hour_delta;
CREATE OR REPLACE VIEW token_usage_day AS
    SELECT * FROM token_day UNION ALL
    SELECT date_trunc('day', hour, 'UTC'), dimension, epoch, requests, input_tokens, cache_read_input_tokens,
           cache_creation_input_tokens, output_tokens, reasoning_output_tokens
    FROM token_hour_delta;

CREATE OR REPLACE FUNCTION token_fold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_hour (hour, dimension, epoch, requests, input_tokens, cache_read_input_tokens,
                            cache_creation_input_tokens, output_tokens, reasoning_output_tokens)
        SELECT hour, dimension, epoch,
               sum(requests)::bigint,
               sum(input_tokens)::bigint,
               sum(cache_read_input_tokens)::bigint,
               sum(cache_creation_input_tokens)::bigint,
               sum(output_tokens)::bigint,
               sum(reasoning_output_tokens)::bigint
        FROM moved GROUP BY 1, 2, 3
        ON CONFLICT (hour, dimension, epoch) DO UPDATE SET
        requests = token_hour.requests + excluded.requests,
        input_tokens = token_hour.input_tokens + excluded.input_tokens,
        cache_read_input_tokens = token_hour.cache_read_input_tokens + excluded.cache_read_input_tokens,
        cache_creation_input_tokens = token_hour.cache_creation_input_tokens + excluded.cache_creation_input_tokens,
        output_tokens = token_hour.output_tokens + excluded.output_tokens,
        reasoning_output_tokens = token_hour.reasoning_output_tokens + excluded.reasoning_output_tokens;
    INSERT INTO token_day (day, dimension, epoch, requests, input_tokens, cache_read_input_tokens,
                            cache_creation_input_tokens, output_tokens, reasoning_output_tokens)
        SELECT date_trunc('day', hour, 'UTC'), dimension, epoch,
               sum(requests)::bigint,
               sum(input_tokens)::bigint,
               sum(cache_read_input_tokens)::bigint,
               sum(cache_creation_input_tokens)::bigint,
               sum(output_tokens)::bigint,
               sum(reasoning_output_tokens)::bigint
        FROM moved GROUP BY 1, 2, 3
        ON CONFLICT (day, dimension, epoch) DO UPDATE SET
        requests = token_day.requests + excluded.requests,
        input_tokens = token_day.input_tokens + excluded.input_tokens,
        cache_read_input_tokens = token_day.cache_read_input_tokens + excluded.cache_read_input_tokens,
        cache_creation_input_tokens = token_day.cache_creation_input_tokens + excluded.cache_creation_input_tokens,
        output_tokens = token_day.output_tokens + excluded.output_tokens,
        reasoning_output_tokens = token_day.reasoning_output_tokens + excluded.reasoning_output_tokens;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER what_is_deleted_is_folded AFTER DELETE ON token_hour_delta REFERENCING OLD TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION token_fold();
CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON token_hour_delta
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
CREATE OR REPLACE TRIGGER only_folding_writes BEFORE INSERT OR UPDATE OR DELETE ON token_hour FOR EACH STATEMENT
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION suanpan_refuse('only folding writes a roll-up');
CREATE OR REPLACE TRIGGER only_folding_writes BEFORE INSERT OR UPDATE OR DELETE ON token_day FOR EACH STATEMENT
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION suanpan_refuse('only folding writes a roll-up');
SELECT suanpan_never_emptied(name::regclass, 'reported usage is never changed')
  FROM unnest(ARRAY['token_hour_delta', 'token_hour', 'token_day']) AS name;

-- Numbers that sources give their records, as unbroken ranges; a hole between two is what never arrived. Ingest appends a
-- row for each range of a transaction, a background task joins rows that overlap or touch. Readers read the view, in which
-- they are joined already.
CREATE TABLE IF NOT EXISTS token_sequence (
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
CREATE OR REPLACE VIEW token_sequence_island AS
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

CREATE OR REPLACE FUNCTION token_sequence_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g WHERE NOT EXISTS (
        SELECT 1 FROM token_sequence s
        WHERE s.source = g.source AND s.run = g.run AND s.first <= g.first AND s.last >= g.last)) THEN
        RAISE EXCEPTION 'DELETE of token_sequence: numbers that have arrived stay' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER numbers_stay AFTER DELETE ON token_sequence REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION token_sequence_guard();
CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON token_sequence
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
SELECT suanpan_never_emptied('token_sequence', 'reported usage is never changed');
