-- expand
-- locks roles accounts credentials: access exclusive, at once

-- Numbers that access tokens carry beside the creation of their role: of the role, and of its account. Tokens are revoked by
-- replacing one of them, at random, as creations are made, so that neither a restored backup nor a second primary brings an old
-- one back. What has had no token revoked has 0, and so have tokens without a number.

ALTER TABLE roles ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE accounts ADD COLUMN epoch bigint NOT NULL DEFAULT 0;

-- Counts changes of the API key and the password, though not what seals or hashes the same ones again.

ALTER TABLE credentials ADD COLUMN edition bigint NOT NULL DEFAULT 0;

-- Sessions of users. What a login found is kept, and a session ends where it differs: creation, epoch, edition, and the signing
-- key. Of refresh tokens there are keyed hashes alone: of the one that is good for the next renewal, and of the one that was used
-- for the last, with the seed that the next was made of. Times are in seconds since 1970.

CREATE TABLE sessions (
    role_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    session_id text COLLATE "C" NOT NULL,
    creation bigint NOT NULL,
    epoch bigint NOT NULL,
    edition bigint NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    token bytea NOT NULL,
    used bytea,
    seed bytea,
    created_at double precision NOT NULL,
    ends_at double precision NOT NULL,
    used_at double precision NOT NULL,
    used_from text NOT NULL,
    PRIMARY KEY (role_id, session_id)
);

-- Accounts whose admin was given another API key on a server's machine. Servers look here for what they have yet to tell.

CREATE TABLE recoveries (
    recovered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    account text COLLATE "C" NOT NULL,
    PRIMARY KEY (recovered_at, account)
);
