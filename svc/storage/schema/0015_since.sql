-- expand
-- locks heartbeat: access exclusive, writes all

-- Since when the primary has been one: the first beat on its timeline. Where nobody was ever promoted, it has been since the
-- schema was made; NULL where it isn't known. An older program leaves it, until one that knows it beats.

ALTER TABLE heartbeat ADD COLUMN since timestamptz;

UPDATE heartbeat SET timeline = log.timeline, since = made.created_at
FROM (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint AS timeline OFFSET 0) AS log
    LEFT JOIN roles AS made ON made.role_id = '/:policy:health' AND log.timeline = 1;
