-- The account "!" can be made from now on, for those who administer accounts. So what belongs to the program alone, as health asks
-- for it and as keeps tables from being empty, moves to the account "/", which no request can name.

INSERT INTO roles (role_id) SELECT '/' || substr(role_id, 2) FROM roles WHERE role_id LIKE '!:%';
INSERT INTO resources (resource_id, owner_id)
    SELECT '/' || substr(resource_id, 2), '/' || substr(owner_id, 2) FROM resources WHERE resource_id LIKE '!:%';
INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    SELECT '/' || substr(role_id, 2), '/' || substr(member_id, 2), ownership, admin_option FROM memberships
    WHERE role_id LIKE '!:%';
INSERT INTO permissions (resource_id, privilege, role_id)
    SELECT '/' || substr(resource_id, 2), privilege, '/' || substr(role_id, 2) FROM permissions WHERE resource_id LIKE '!:%';
INSERT INTO annotations (resource_id, name, value)
    SELECT '/' || substr(resource_id, 2), name, value FROM annotations WHERE resource_id LIKE '!:%';
INSERT INTO documents SELECT resource_id, split, plain FROM searchable WHERE resource_id LIKE '/:%';
DELETE FROM roles WHERE role_id LIKE '!:%';

-- Tokens of host factories. A token has 256 random bits, of which only the SHA-256 is kept: it is looked up by that, and who
-- steals the table can make no host. expires_at is in seconds since the epoch.

CREATE TABLE host_factory_tokens (
    digest bytea PRIMARY KEY,
    factory_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    expires_at double precision NOT NULL,
    networks text[] NOT NULL
);
CREATE INDEX host_factory_tokens_by_factory ON host_factory_tokens (factory_id, expires_at);
CREATE INDEX host_factory_tokens_by_expiry ON host_factory_tokens (expires_at);

-- As in 0003, the table is never empty. Nobody knows a text that has such a digest.

INSERT INTO host_factory_tokens (digest, factory_id, expires_at, networks)
    SELECT decode(lpad(number::text, 64, '0'), 'hex'), '/:host:' || number, 'infinity', '{}'
    FROM generate_series(1, 200) AS number;

-- What health looks up among the public keys.

INSERT INTO resources (resource_id, owner_id) VALUES ('/:public_key:health/known', '/:policy:health');
INSERT INTO secrets (resource_id, version, sealed) VALUES ('/:public_key:health/known', 1, 'known');
