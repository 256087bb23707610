-- From where a user or host may log in: addresses and ranges in CIDR notation, in the one spelling that svc/policy/ranges.py
-- writes, always with the mask. A role without a row may from everywhere.

CREATE TABLE restrictions (
    role_id text COLLATE "C" NOT NULL REFERENCES roles ON DELETE CASCADE,
    cidr text COLLATE "C" NOT NULL,
    PRIMARY KEY (role_id, cidr)
);

-- The public keys of a user, public_key:user/<user>/<name>, belong to his owner. They go with the user all the same: whoever
-- is given his name after him doesn't inherit them. "0" follows the slash in byte order.

CREATE FUNCTION delete_public_keys() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    keys text COLLATE "C" := regexp_replace(OLD.role_id, '^([^:]*):user:', '\1:public_key:user/');
BEGIN
    DELETE FROM resources WHERE resource_id >= keys || '/' AND resource_id < keys || '0';
    RETURN NULL;
END
$$;
CREATE TRIGGER public_keys_go_with_user AFTER DELETE ON roles FOR EACH ROW
    WHEN (OLD.role_id ~ '^[^:]*:user:') EXECUTE FUNCTION delete_public_keys();
