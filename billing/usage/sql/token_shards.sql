-- Token records that ClickHouse keeps (ADR 0038). What counts is decided here: of a shard, the records of every batch up to its
-- last one, but for the open batches, whose writers ended before they could commit what their records add to each hour.

CREATE TABLE IF NOT EXISTS token_shard (
    number integer PRIMARY KEY,
    batch bigint NOT NULL,
    incarnation text NOT NULL
);
COMMENT ON COLUMN token_shard.incarnation IS 'of this database, which a restore and a promotion change';
CREATE TABLE IF NOT EXISTS token_open_batch (
    shard integer NOT NULL,
    batch bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (shard, batch, last),
    CONSTRAINT a_range_ends_after_its_start CHECK (last >= batch)
);

CREATE OR REPLACE FUNCTION token_shard_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number <> OLD.number OR NEW.batch < OLD.batch THEN
        RAISE EXCEPTION 'UPDATE of token_shard: what counts goes on counting' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER batches_go_on BEFORE UPDATE ON token_shard
    FOR EACH ROW EXECUTE FUNCTION token_shard_guard();
CREATE OR REPLACE TRIGGER rows_remain BEFORE DELETE ON token_shard
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('what counts goes on counting');
SELECT suanpan_never_emptied('token_shard', 'what counts goes on counting');

CREATE OR REPLACE FUNCTION token_open_batch_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.last > OLD.batch OR OLD.batch <= (SELECT batch FROM token_shard WHERE number = OLD.shard) THEN
        RAISE EXCEPTION 'DELETE of token_open_batch: what never counted does not begin to' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER only_the_newest_is_committed BEFORE DELETE ON token_open_batch
    FOR EACH ROW EXECUTE FUNCTION token_open_batch_guard();
CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE ON token_open_batch
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('what never counted does not begin to');
SELECT suanpan_never_emptied('token_open_batch', 'what never counted does not begin to');

-- Once there are shards, a process that does not know them would take in again what they have.
CREATE OR REPLACE FUNCTION token_entry_is_taken_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM token_shard) AND current_setting('suanpan.records_return', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'INSERT into token_entry: token records go to ClickHouse, and this process has no TOKEN_STORE'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER only_one_store_takes BEFORE INSERT ON token_entry
    FOR EACH STATEMENT EXECUTE FUNCTION token_entry_is_taken_here();
