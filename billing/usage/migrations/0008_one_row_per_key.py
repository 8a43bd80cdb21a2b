"""One row per key: the ledger of keys and the events become one table, keyed and narrow.

`token_entry` is both. Its primary key is the key of (source, id), whatever the time of the record and for ever, so a
retry that carries another time finds the row that is there. With the key beside the counts a repeat is compared with
what the row says; no hash of the content is needed. An id that is a UUID is the key itself under a mask
(`metering.token_keys`) and read back by `token_id`; counts take 32 bits, larger ones stand in `rest`.

Readers keep reading `token_event`, now a view with the same columns. Join removal drops the dimension from every query
that does not ask for the id.
"""

from typing import Any

import msgspec
from django.db import migrations

from metering.token_keys import is_masked, token_key

BATCH = 20_000

FORWARD = """
CREATE TABLE token_entry (
    key uuid PRIMARY KEY,
    time timestamptz NOT NULL,
    dimension integer NOT NULL,
    input_tokens integer NOT NULL,
    cache_read_input_tokens integer NOT NULL,
    cache_creation_input_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    reasoning_output_tokens integer NOT NULL,
    epoch smallint NOT NULL,
    id text NOT NULL,
    rest text NOT NULL
);
COMMENT ON COLUMN token_entry.id IS 'empty where the key tells it: see token_id';
COMMENT ON COLUMN token_entry.rest IS 'empty, or JSON: attributes; counts, where the columns hold -1';
CREATE INDEX token_entry_time ON token_entry USING brin (time) WITH (pages_per_range = 32);

CREATE FUNCTION token_id(key uuid, source text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (substr(k, 1, 16) || lpad(to_hex(('x' || substr(k, 17))::bit(64)::bigint # ('x' || m)::bit(64)::bigint), 16, '0')
           )::uuid::text
    FROM (SELECT replace(key::text, '-', '') AS k,
                 encode(substr(sha256(convert_to(source, 'UTF8')), 1, 8), 'hex') AS m) x
$$;
"""

SWITCH = """
DROP TABLE token_event, token_key;

CREATE VIEW token_event AS
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

CREATE TRIGGER token_entry_is_append_only BEFORE UPDATE OR DELETE ON token_entry
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
"""

EVENTS = """SELECT d.source, t.id, t.time, t.dimension, t.epoch, t.input_tokens, t.cache_read_input_tokens,
                   t.cache_creation_input_tokens, t.output_tokens, t.reasoning_output_tokens, t.attributes::text
            FROM token_event t JOIN token_dimension d ON d.id = t.dimension"""
COLUMNS = """key, time, dimension, input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens,
             reasoning_output_tokens, epoch, id, rest"""


def move(apps: Any, editor: Any) -> None:
    """Every event under its key. What a key says of its content is in the row itself from now on."""
    connection = editor.connection.connection
    with connection.cursor("events_to_move") as events, connection.cursor() as cursor:
        events.execute(EVENTS)
        while rows := events.fetchmany(BATCH):
            with cursor.copy(f"COPY token_entry ({COLUMNS}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(_entry(row))
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM token_key) - (SELECT count(*) FROM token_entry)")
        (missing,) = cursor.fetchone()
        if missing:
            raise RuntimeError(f"{missing} keys of token_key have no event: nothing was changed, look at them first")


def _entry(row: tuple[Any, ...]) -> tuple[Any, ...]:
    source, identity, time, dimension, epoch, *counts, attributes = row
    rest = f'{{"attributes":{_as_reported(attributes)}}}' if attributes else ""
    if max(counts) > 2**31 - 1:
        rest = f'{{"attributes":{_as_reported(attributes)},"counts":{counts}}}'
        counts = [-1] * 5
    key = token_key(source, identity).hex()
    return (key, time, dimension, *counts, epoch, "" if is_masked(identity) else identity, rest)


def _as_reported(attributes: str | None) -> str:
    """The form in which a repeat is compared: keys in order, nothing between them."""
    return msgspec.json.encode(msgspec.json.decode(attributes or "null"), order="deterministic").decode()


class Migration(migrations.Migration):
    """There is no way back but a backup: two tables would need a hash of contents that is no longer kept."""

    dependencies = [("usage", "0007_engine_reading")]
    operations = [migrations.RunSQL(FORWARD), migrations.RunPython(move), migrations.RunSQL(SWITCH)]
