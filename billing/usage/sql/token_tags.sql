-- Tags of token records as sets that never change, and the values that were seen of each tag on a day of the records: beyond so
-- many of them a value is not kept, and its tag is null in the set.
CREATE TABLE IF NOT EXISTS token_tag_set (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    tags jsonb NOT NULL
);
SELECT suanpan_append_only('token_tag_set', 'records refer to it');
CREATE TABLE IF NOT EXISTS token_tag_value (
    source text NOT NULL,
    key text NOT NULL,
    day date NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (source, key, day, value)
);
SELECT suanpan_append_only('token_tag_value', 'a value that was seen stays counted');
