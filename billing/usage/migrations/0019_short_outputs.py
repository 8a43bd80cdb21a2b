"""Output and reasoning counts in 16 bits each, so that a row of the ledger takes eight bytes less.

An answer rarely has more than 32,767 tokens. One that has keeps all its counts in `rest`, as those do whose counts pass
32 bits. The table is written anew, which takes as much space again until it is done.
"""

from django.db import migrations

COUNTS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip
LARGEST = 2**15 - 1


def _view() -> str:
    counts = ",\n".join(
        f"""CASE WHEN e.{name} >= 0 THEN e.{name} ELSE (e.rest::jsonb #>> '{{counts,{place}}}')::bigint END AS {name}"""
        for place, name in enumerate(COUNTS)
    )
    return f"""
CREATE VIEW token_event AS
    SELECT e.key, e.time, e.dimension, e.epoch::integer AS epoch, {counts},
           CASE WHEN e.id <> '' THEN e.id ELSE token_id(e.key, d.source) END AS id,
           CASE WHEN e.rest <> '' THEN nullif(e.rest::jsonb -> 'attributes', 'null') END AS attributes
    FROM token_entry e LEFT JOIN token_dimension d ON d.id = e.dimension;
"""


def _kept(name: str) -> str:
    return f"CASE WHEN m.moves THEN -1 ELSE e.{name} END"


FORWARD = f"""
DROP VIEW token_event;
ALTER TABLE token_entry RENAME TO token_entry_before;
CREATE TABLE token_entry (
    key uuid NOT NULL,
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
INSERT INTO token_entry
    SELECT e.key, e.time, e.dimension, {', '.join(_kept(name) for name in COUNTS)}, e.epoch, e.id,
           CASE WHEN m.moves THEN
               CASE WHEN e.rest = '' THEN '{{"attributes":null' ELSE left(e.rest, -1) END
               || ',"counts":[' || concat_ws(',', {', '.join(f'e.{name}' for name in COUNTS)}) || ']}}'
           ELSE e.rest END
    FROM token_entry_before e,
         LATERAL (SELECT greatest(e.output_tokens, e.reasoning_output_tokens) > {LARGEST} AS moves) m;
DROP TABLE token_entry_before;
ALTER TABLE token_entry ADD CONSTRAINT token_entry_pkey PRIMARY KEY (key);
CREATE INDEX token_entry_time ON token_entry USING brin (time) WITH (pages_per_range = 32);
COMMENT ON COLUMN token_entry.id IS 'empty where the key tells it: see token_id';
COMMENT ON COLUMN token_entry.rest IS 'empty, or JSON: attributes; counts, where the columns hold -1';
CREATE TRIGGER token_entry_is_append_only BEFORE UPDATE OR DELETE ON token_entry
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('reported usage is never changed');
{_view()}
"""
REVERSE = f"""
DROP VIEW token_event;
ALTER TABLE token_entry ALTER output_tokens TYPE integer, ALTER reasoning_output_tokens TYPE integer;
{_view()}
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0018_what_came_late")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
