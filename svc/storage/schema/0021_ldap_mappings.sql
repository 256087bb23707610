-- expand
-- locks memberships resources roles: share row exclusive, at once

-- Mappings of LDAP authenticators: whom the directory calls by a name has a role. webservice_id is the authenticator's. kind
-- is group or user. key is the name as names are compared, and name as it was said.

CREATE TABLE ldap_mappings (
    webservice_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('group', 'user')),
    key text COLLATE "C" NOT NULL,
    role_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    name text NOT NULL,
    PRIMARY KEY (webservice_id, kind, key, role_id)
);
CREATE INDEX ldap_mappings_by_role ON ldap_mappings (role_id);

-- Memberships that are there because of mappings, and of nothing else, each with every mapping that it follows from.

CREATE TABLE mapped_memberships (
    webservice_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    role_id text COLLATE "C" NOT NULL,
    member_id text COLLATE "C" NOT NULL,
    ownership boolean NOT NULL DEFAULT false CHECK (NOT ownership),
    PRIMARY KEY (role_id, member_id, webservice_id, kind, key),
    FOREIGN KEY (webservice_id, kind, key, role_id) REFERENCES ldap_mappings ON DELETE CASCADE,
    FOREIGN KEY (role_id, member_id, ownership) REFERENCES memberships ON DELETE CASCADE
);
CREATE INDEX mapped_memberships_by_mapping ON mapped_memberships (webservice_id, kind, key, role_id);
CREATE INDEX mapped_memberships_by_member ON mapped_memberships (member_id, webservice_id);

-- A membership goes with the last mapping that it follows from, in the same transaction, no matter who removes that and in which
-- program. It is locked before others are looked for: of two that go at once, the second finds the first gone.

CREATE FUNCTION delete_unmapped_membership() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM memberships WHERE role_id = OLD.role_id AND member_id = OLD.member_id AND NOT ownership FOR UPDATE;
    DELETE FROM memberships
    WHERE role_id = OLD.role_id AND member_id = OLD.member_id AND NOT ownership AND policy_id IS NULL
        AND NOT EXISTS (SELECT FROM mapped_memberships WHERE role_id = OLD.role_id AND member_id = OLD.member_id);
    RETURN NULL;
END
$$;
CREATE TRIGGER membership_goes_with_mapping AFTER DELETE ON mapped_memberships
    FOR EACH ROW EXECUTE FUNCTION delete_unmapped_membership();

-- As in 0003, no table that has several indexes is ever empty.

INSERT INTO ldap_mappings (webservice_id, kind, key, role_id, name)
    SELECT '/:host:' || number, 'group', number::text, '/:host:' || number, number::text
    FROM generate_series(1, 200) AS number;
INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    SELECT '/:host:' || number, '/:host:' || number, false, false FROM generate_series(1, 200) AS number;
INSERT INTO mapped_memberships (webservice_id, kind, key, role_id, member_id)
    SELECT '/:host:' || number, 'group', number::text, '/:host:' || number, '/:host:' || number
    FROM generate_series(1, 200) AS number;
