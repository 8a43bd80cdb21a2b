"""Tokens by UTC day beside those by hour: a close reads whole days, and hours only of days that something cuts.

The folder adds to both in one statement, so that a day is always the sum of its hours.
"""

from django.db import migrations

COUNTS = (
    "requests", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip
DAY = "date_trunc('day', hour, 'UTC')"
FORWARD = f"""
CREATE TABLE token_day (
    day timestamptz NOT NULL,
    dimension integer NOT NULL,
    epoch integer NOT NULL,
    {', '.join(f'{name} bigint NOT NULL' for name in COUNTS)},
    PRIMARY KEY (day, dimension, epoch)
);
LOCK token_hour IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO token_day
    SELECT {DAY}, dimension, epoch, {', '.join(f'sum({name})' for name in COUNTS)} FROM token_hour GROUP BY 1, 2, 3;
CREATE VIEW token_usage_day AS
    SELECT * FROM token_day UNION ALL
    SELECT {DAY}, dimension, epoch, {', '.join(COUNTS)} FROM token_hour_delta;
"""
REVERSE = "DROP VIEW token_usage_day; DROP TABLE token_day"


class Migration(migrations.Migration):
    dependencies = [("usage", "0016_ends_of_pieces")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
