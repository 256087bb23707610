-- Names are full ids, account:kind:identifier, in the byte order of COLLATE "C": listings page by key, and a kind of member
-- is a range of the key.

CREATE TABLE accounts (
    account text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE signing_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    account text COLLATE "C" NOT NULL REFERENCES accounts ON DELETE CASCADE,
    serial bigint GENERATED ALWAYS AS IDENTITY,
    sealed bytea NOT NULL,
    created_at double precision NOT NULL,
    retires_at double precision
);
CREATE INDEX signing_keys_by_account ON signing_keys (account, serial);

-- policy_id is the policy that a row was loaded INTO; NULL for rows that no load made.

CREATE TABLE roles (
    role_id text COLLATE "C" PRIMARY KEY,
    policy_id text COLLATE "C" REFERENCES roles ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX roles_by_policy ON roles (policy_id);

CREATE TABLE resources (
    resource_id text COLLATE "C" PRIMARY KEY,
    owner_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    policy_id text COLLATE "C" REFERENCES roles ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX resources_by_owner ON resources (owner_id);
CREATE INDEX resources_by_policy ON resources (policy_id);

-- A role that a policy recorded goes with its resource, so that nobody can log in as what was deleted with its owner. One
-- that no policy recorded stays: its name is not free.

CREATE FUNCTION delete_recorded_role() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM roles WHERE role_id = OLD.resource_id AND policy_id IS NOT NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER role_goes_with_resource AFTER DELETE ON resources FOR EACH ROW EXECUTE FUNCTION delete_recorded_role();

CREATE TABLE memberships (
    role_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    member_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    ownership boolean NOT NULL,
    admin_option boolean NOT NULL,
    policy_id text COLLATE "C" REFERENCES roles ON DELETE CASCADE,
    PRIMARY KEY (role_id, member_id, ownership)
);
CREATE INDEX memberships_by_member ON memberships (member_id) INCLUDE (role_id);
CREATE INDEX memberships_of_administrators ON memberships (role_id, member_id) WHERE admin_option;
CREATE INDEX memberships_by_policy ON memberships (policy_id);

CREATE TABLE permissions (
    resource_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    privilege text COLLATE "C" NOT NULL,
    role_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    policy_id text COLLATE "C" REFERENCES roles ON DELETE CASCADE,
    PRIMARY KEY (resource_id, privilege, role_id)
);
CREATE INDEX permissions_by_role ON permissions (role_id);
CREATE INDEX permissions_by_policy ON permissions (policy_id);

CREATE TABLE annotations (
    resource_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    policy_id text COLLATE "C" REFERENCES roles ON DELETE CASCADE,
    PRIMARY KEY (resource_id, name)
);
CREATE INDEX annotations_by_policy ON annotations (policy_id);

CREATE TABLE credentials (
    role_id text COLLATE "C" PRIMARY KEY REFERENCES roles ON DELETE CASCADE,
    api_key bytea NOT NULL
);

-- serial tells two values of one variable apart even when the variable was deleted and made again in between.

CREATE TABLE secrets (
    resource_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    version integer NOT NULL,
    serial bigint GENERATED ALWAYS AS IDENTITY,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (resource_id, version)
);

CREATE TABLE policy_versions (
    policy_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    version integer NOT NULL,
    text text NOT NULL,
    sha256 text NOT NULL,
    loaded_by text COLLATE "C" NOT NULL,
    client_ip text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (policy_id, version)
);

-- One row each: a value sealed under the data key, and a row that health writes.

CREATE TABLE canary (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    sealed bytea NOT NULL
);

CREATE TABLE heartbeat (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    beaten_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO heartbeat DEFAULT VALUES;

-- What health asks a privilege question about. No account can have the name "!", so that no request reaches these rows.

INSERT INTO roles (role_id) VALUES ('!:policy:health'), ('!:group:health'), ('!:user:health');
INSERT INTO resources (resource_id, owner_id) VALUES ('!:webservice:health', '!:policy:health');
INSERT INTO memberships (role_id, member_id, ownership, admin_option) VALUES ('!:group:health', '!:user:health', false, false);
INSERT INTO permissions (resource_id, privilege, role_id) VALUES ('!:webservice:health', 'read', '!:group:health');
