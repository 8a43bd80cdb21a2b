"""Token events: a ledger of keys, events partitioned by month, hourly roll-ups.

`token_key` holds the 128-bit hash of (source, id) of every event ever accepted, with a hash of its content. It is the
one place where uniqueness is decided, so it holds across partitions, for ever, and outlives events that are archived;
a primary key of (id, time) on the partitioned table would not notice a retry that carries another time.

`token_hour_delta` takes what each ingest transaction adds; a folder moves it into `token_hour`. Every reader reads the
view `token_usage_hour`, which is both, and therefore always equals the events.

Events refer to `token_dimension` without a foreign key, which would be checked for every row: a
dimension is written in the transaction of its first event or before, and the table only grows.
"""

from django.db import migrations

COUNTS = """
    input_tokens bigint NOT NULL,
    cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL
"""

FORWARD = f"""
CREATE TABLE token_dimension (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    source text NOT NULL,
    consumer text NOT NULL,
    model text NOT NULL,
    site text,
    provider text,
    status text
);

CREATE TABLE token_key (
    key uuid PRIMARY KEY,
    content bigint NOT NULL
);

CREATE TABLE token_event (
    time timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    {COUNTS},
    id text NOT NULL,
    attributes jsonb
) PARTITION BY RANGE (time);
CREATE INDEX token_event_time ON token_event USING brin (time) WITH (pages_per_range = 32);

CREATE TABLE token_hour (
    hour timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    requests bigint NOT NULL,
    {COUNTS},
    PRIMARY KEY (hour, dimension, epoch)
);

CREATE TABLE token_hour_delta (
    hour timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    requests bigint NOT NULL,
    {COUNTS}
);

CREATE VIEW token_usage_hour AS
    SELECT * FROM token_hour UNION ALL SELECT * FROM token_hour_delta;

CREATE TRIGGER token_dimension_is_append_only BEFORE UPDATE OR DELETE ON token_dimension
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('events refer to it');
CREATE TRIGGER token_key_is_append_only BEFORE UPDATE OR DELETE ON token_key
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
CREATE TRIGGER token_event_is_append_only BEFORE UPDATE OR DELETE ON token_event
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');

CREATE FUNCTION microseconds(span interval) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (extract(epoch FROM span) * 1000000)::bigint;
"""
REVERSE = """
DROP FUNCTION microseconds(interval);
DROP VIEW token_usage_hour;
DROP TABLE token_hour_delta, token_hour, token_event, token_key, token_dimension;
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0001_initial"), ("tenancy", "0002_audit_is_append_only")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
