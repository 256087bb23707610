-- expand
-- locks accounts: share row exclusive, at once

-- What policy deleted, and values that newer versions pushed out, until they are had back or purged. Values stay as they
-- were sealed. A role is named with its creation: what belonged to it comes back to that role alone, not to the next of its
-- name. creation is that of the record's own role, NULL where it has none, and made_at when the record had been made.
-- overwritten: the row has nothing but values that were pushed out. facts: its annotations, restrictions, grants and
-- permissions, as far as its policy recorded them, what operators told its authenticator, and which roles were permitted to
-- read its values, no matter who said so. bytes: what the row takes with its values, about.

CREATE TABLE deleted_records (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text COLLATE "C" REFERENCES accounts ON DELETE CASCADE,
    resource_id text COLLATE "C" NOT NULL,
    creation bigint,
    owner_id text COLLATE "C" NOT NULL,
    owner_creation bigint NOT NULL,
    policy_id text COLLATE "C" NOT NULL,
    policy_creation bigint NOT NULL,
    overwritten boolean NOT NULL,
    made_at timestamptz NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    bytes bigint NOT NULL,
    facts jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX deleted_records_by_policy ON deleted_records (policy_id, number);
CREATE INDEX deleted_records_by_resource ON deleted_records (resource_id, number);
CREATE INDEX deleted_records_by_owner ON deleted_records (owner_id);
CREATE INDEX deleted_records_by_account ON deleted_records (account, number) INCLUDE (bytes);
CREATE INDEX deleted_records_by_time ON deleted_records (deleted_at);

CREATE TABLE deleted_values (
    record bigint NOT NULL REFERENCES deleted_records ON DELETE CASCADE,
    version integer NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (record, version)
);

-- As in 0003, the table is never empty. These rows are of no account, and are never old.

INSERT INTO deleted_records (
    resource_id, creation, owner_id, owner_creation, policy_id, policy_creation, overwritten, made_at, deleted_at,
    bytes
)
    SELECT '/:host:' || number, number, '/:host:' || number, number, '/:policy:' || number, number, false, now(), 'infinity', 0
    FROM generate_series(1, 200) AS number;
