-- expand
-- locks roles resources: share row exclusive, at once

-- The LDAP authenticator, by its webservice, at which a user logged in last. missing_since is when a round found no usable entry
-- of the user in its directory, NULL while there is one. refused: a later round confirmed that, so that the API key proves nothing.

CREATE TABLE directory_users (
    role_id text COLLATE "C" PRIMARY KEY REFERENCES roles ON DELETE CASCADE,
    webservice_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    missing_since timestamptz,
    refused boolean NOT NULL DEFAULT false CHECK (missing_since IS NOT NULL OR NOT refused)
);
CREATE INDEX directory_users_by_webservice ON directory_users (webservice_id, role_id);
CREATE INDEX directory_users_missing ON directory_users (webservice_id, missing_since) WHERE missing_since IS NOT NULL;

-- When the last round of an authenticator began, when a server last did this for it, and why the last round changed nothing.

CREATE TABLE directory_rounds (
    webservice_id text COLLATE "C" PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
    begun_at timestamptz NOT NULL,
    kept_at timestamptz NOT NULL,
    fault text
);
CREATE INDEX directory_rounds_by_age ON directory_rounds (kept_at);

-- What is remembered of a credential (0010) changes with the part of a row that is read with it.

CREATE TRIGGER touched_by_insert AFTER INSERT ON directory_users FOR EACH ROW
    WHEN (NEW.missing_since IS NOT NULL) EXECUTE FUNCTION touch_role('c:');
CREATE TRIGGER touched_by_update AFTER UPDATE ON directory_users FOR EACH ROW
    WHEN (OLD.missing_since IS NOT NULL OR NEW.missing_since IS NOT NULL) EXECUTE FUNCTION touch_role('c:');
CREATE TRIGGER touched_by_delete AFTER DELETE ON directory_users FOR EACH ROW
    WHEN (OLD.missing_since IS NOT NULL) EXECUTE FUNCTION touch_role('c:');
CREATE TRIGGER touched_by_truncate AFTER TRUNCATE ON directory_users
    FOR EACH STATEMENT EXECUTE FUNCTION touch_everything();
ALTER TABLE directory_users ENABLE ALWAYS TRIGGER touched_by_insert, ENABLE ALWAYS TRIGGER touched_by_update,
    ENABLE ALWAYS TRIGGER touched_by_delete, ENABLE ALWAYS TRIGGER touched_by_truncate;

-- As in 0003, no table that has several indexes is ever empty.

INSERT INTO directory_users (role_id, webservice_id)
    SELECT '/:host:' || number, '/:host:' || number FROM generate_series(1, 200) AS number;
INSERT INTO directory_rounds (webservice_id, begun_at, kept_at)
    SELECT '/:host:' || number, 'infinity', 'infinity' FROM generate_series(1, 200) AS number;
