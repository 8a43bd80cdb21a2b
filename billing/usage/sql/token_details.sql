-- Optional fields of token records (ADR 0042): a row only for a record that states one. The counts of the record stand here
-- too, so that sums by service tier or tag need neither the ledger, nor ClickHouse, nor the archive. A row stays when its
-- record leaves for an archive: a repeat is compared with it for ever.
CREATE TABLE IF NOT EXISTS token_detail (
    key uuid PRIMARY KEY,
    time timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    input_tokens bigint NOT NULL,
    cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL,
    service_tier text,
    deployment text,
    hardware text,
    cache_creation_1h_input_tokens bigint,
    audio_input_tokens bigint,
    image_input_tokens bigint,
    audio_output_tokens bigint,
    image_output_tokens bigint,
    searches bigint,
    tool_calls bigint,
    tag_set integer,
    content_sha256 bytea NOT NULL
);
COMMENT ON COLUMN token_detail.content_sha256 IS 'of what was reported';
CREATE INDEX IF NOT EXISTS token_detail_time ON token_detail USING brin (time timestamptz_minmax_multi_ops)
    WITH (pages_per_range = 32);
CREATE INDEX IF NOT EXISTS token_detail_tier ON token_detail (time) WHERE service_tier <> 'standard';
SELECT suanpan_append_only('token_detail', 'reported usage is never changed');
