-- Beside its API key a role may have a password, of which a hash is kept, sealed. From expires_at on, in seconds since the epoch,
-- the API key proves nothing. rotated_at is when it was last replaced, NULL when it never was.

ALTER TABLE credentials
    ADD COLUMN password bytea,
    ADD COLUMN expires_at double precision,
    ADD COLUMN rotated_at timestamptz;
