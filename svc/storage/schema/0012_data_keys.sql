-- expand
-- locks canary signing_keys credentials secrets expirations: share row exclusive, at once

-- The data keys that values are sealed under, by their ids, in their order: the last one seals. A sealed value begins with the
-- byte 1, and is under the key of number 1, or with the byte 2 and the eight bytes of its key's id. An empty table: only one key
-- has ever been, and no server has noted it yet.
--   closed_at   every server sealed with the next key: nothing new may be sealed under this one
--   horizon     a transaction that began after that: earlier ones have ended once it is the oldest
--   retired_at  nothing is sealed under it any more

CREATE TABLE data_keys (
    number integer PRIMARY KEY,
    key_id text COLLATE "C" NOT NULL UNIQUE,
    begun_at timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    horizon xid8,
    retired_at timestamptz
);

-- The processes that seal, each with the key that it seals with and those that it knows, as it said last.

CREATE TABLE data_key_users (
    process text COLLATE "C" PRIMARY KEY,
    place text NOT NULL,
    seals text NOT NULL,
    knows text[] NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- How far sealing again has come: of each sealed column how many values it had at the beginning, how many were sealed again, and
-- in this pass the key of the row that was looked at last. found: values of the old key that this pass has met; unopened: those
-- of them that it doesn't open, and the first one; before_…: those of the pass before.

CREATE TABLE data_key_progress (
    target text COLLATE "C" PRIMARY KEY,
    total bigint NOT NULL,
    resealed bigint NOT NULL DEFAULT 0,
    position text[],
    passed boolean NOT NULL DEFAULT false
);
CREATE TABLE data_key_pass (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    moved_at timestamptz NOT NULL DEFAULT '-infinity',
    found bigint NOT NULL DEFAULT 0,
    unopened bigint NOT NULL DEFAULT 0,
    first_unopened text,
    before_unopened bigint NOT NULL DEFAULT 0,
    before_first_unopened text
);
INSERT INTO data_key_pass DEFAULT VALUES;

-- A server that hasn't noticed a rotation, since it hung or is of an older version, can't write what nothing would open. Its
-- transaction has a number before the key is looked at: so one that found the key open is older than the horizon.

CREATE FUNCTION is_sealed_in_vain(sealed bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF sealed IS NULL OR substring(sealed FROM 1 FOR 1) NOT IN ('\x01', '\x02') THEN
        RETURN false;
    END IF;
    PERFORM pg_current_xact_id();
    RETURN NOT (
        SELECT coalesce(bool_or(closed_at IS NULL AND CASE get_byte(sealed, 0)
            WHEN 1 THEN number = 1 ELSE key_id = encode(substring(sealed FROM 2 FOR 8), 'hex') END), true)
        FROM data_keys
    );
END
$$;

-- The code is that of a conflict: the server runs the transaction again, then tells its client to come again.

CREATE FUNCTION refuse_closed_data_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a value was sealed under a data key that is not in use any more' USING ERRCODE = '40001';
END
$$;

-- For each sealed column; a table that comes later calls it for its own.

CREATE FUNCTION guard_sealed_column(guarded regclass, sealed name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TRIGGER %2$I BEFORE INSERT OR UPDATE OF %3$I ON %1$s FOR EACH ROW WHEN (is_sealed_in_vain(NEW.%3$I))'
        ' EXECUTE FUNCTION refuse_closed_data_key()', guarded, sealed || '_under_open_data_key', sealed);
END
$$;
SELECT guard_sealed_column('canary', 'sealed');
SELECT guard_sealed_column('signing_keys', 'sealed');
SELECT guard_sealed_column('credentials', 'api_key');
SELECT guard_sealed_column('credentials', 'password');
SELECT guard_sealed_column('secrets', 'sealed');
SELECT guard_sealed_column('expirations', 'candidate');
