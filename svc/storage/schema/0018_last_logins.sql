-- expand
-- locks roles: share row exclusive, reads all
-- locks credentials expirations host_factory_tokens: share, reads all

-- The day, in UTC, on which a user or host logged in last. Servers write it some time afterwards, many roles at once. Nothing
-- of it is remembered, so that its changes have no names (0010). account is that of the role's id.

CREATE TABLE last_logins (
    role_id text COLLATE "C" PRIMARY KEY REFERENCES roles ON DELETE CASCADE,
    account text COLLATE "C" NOT NULL,
    day date NOT NULL
);
CREATE INDEX last_logins_by_day ON last_logins (account, day, role_id);

-- As in 0003, the table is never empty.

INSERT INTO last_logins (role_id, account, day)
    SELECT role_id, '/', current_date FROM roles WHERE role_id LIKE '/:host:%';

-- Since when such days are kept: one row.

CREATE TABLE last_logins_kept (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    since timestamptz NOT NULL DEFAULT now()
);
INSERT INTO last_logins_kept DEFAULT VALUES;

-- What ends, and what grows old, by account and in its order.

CREATE INDEX roles_by_age ON roles (split_part(role_id, ':', 1), created_at, role_id)
    WHERE split_part(role_id, ':', 2) IN ('user', 'host');
CREATE INDEX credentials_by_end ON credentials (split_part(role_id, ':', 1), expires_at, role_id) WHERE expires_at IS NOT NULL;
CREATE INDEX credentials_by_rotation ON credentials (split_part(role_id, ':', 1), rotated_at, role_id)
    WHERE rotated_at IS NOT NULL AND expires_at IS NULL;
CREATE INDEX expirations_of_account ON expirations (split_part(resource_id, ':', 1), due_at, resource_id);
CREATE INDEX host_factory_tokens_of_account
    ON host_factory_tokens (split_part(factory_id, ':', 1), expires_at, factory_id, digest);
