-- The table in which idem remembers keys. PostgreSQL 14 or newer.
--
-- For another name, replace idem_message. The first five columns are those of
-- AceMQ's JDBC idempotency store, so that both can share one table.
--
-- No further index: one that names state, claimed_by or expires_at would make
-- every confirm write a second row version and index entries (no HOT update),
-- and the purge walks pages. The free half of each page is where confirms go.
CREATE TABLE IF NOT EXISTS idem_message (
    message_id  varchar(255) COLLATE "C" PRIMARY KEY,
    state       varchar(16) NOT NULL,         -- CLAIMED or CONFIRMED
    claimed_by  varchar(64),                  -- token; null: free or confirmed
    recorded_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,         -- of the lease or the retention
    attempts    integer NOT NULL DEFAULT 0,   -- takeovers and failures
    fingerprint bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
