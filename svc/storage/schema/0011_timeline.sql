-- expand
-- locks heartbeat: access exclusive, at once

-- The timeline of the log that a beat was written on, by which a standby knows its own: it may look at its control file, which
-- learns of a promotion minutes later, and at nothing else.

ALTER TABLE heartbeat ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
