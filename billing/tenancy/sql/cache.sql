-- The cache that all web processes share: counters of sign-in attempts (`CACHES`).
CREATE TABLE IF NOT EXISTS suanpan_cache (
    cache_key varchar(255) PRIMARY KEY,
    value text NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS suanpan_cache_expires ON suanpan_cache (expires);
