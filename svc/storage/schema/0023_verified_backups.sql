-- expand
-- locks backups: access exclusive, at once

-- The newest backup that `svc backup verify` found whole: when it was made, and where it was when it was verified. beside: whether
-- that is the database's own disk, NULL where this isn't known.

ALTER TABLE backups
    ADD COLUMN verified_at timestamptz,
    ADD COLUMN dumped_at timestamptz,
    ADD COLUMN size bigint,
    ADD COLUMN file text,
    ADD COLUMN beside boolean;
