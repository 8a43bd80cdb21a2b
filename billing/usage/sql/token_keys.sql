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
