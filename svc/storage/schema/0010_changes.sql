-- expand
-- locks accounts annotations authenticator_switches credentials distrusted_keys key_refreshes memberships permissions resources restrictions roles secrets signing_keys: share row exclusive, at once

-- What a transaction changed, by name, for servers that remember what they have read: they drop what is named here. Triggers
-- write it, so that older servers, psql, commands and loads can't forget it. A name is a letter, a colon and an id:
--   r  a role's or resource's row, permissions on it, its annotations       v  the versions of a variable's value
--   m  what a role is a member of                                           g  the members of a role
--   c  a role's credentials and restrictions                                w  what operators told an authenticator
--   k  an account's row, and its signing keys
-- or * and an account, where one transaction changed more than is named, or * alone: everything.

CREATE TABLE changes (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    touched text[] NOT NULL
);
CREATE INDEX changes_by_xid ON changes (xid);

-- Rows of transactions before this one have been removed, so that a server which has not looked since may have missed some.

CREATE TABLE changes_removed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    below xid8 NOT NULL
);
INSERT INTO changes_removed (below) VALUES ('0');

-- One transaction names so many rows that it changed, and then whole accounts. Both settings end with the transaction; they are
-- set back with a savepoint, as the rows are. A trigger isn't called for an account that is named whole, from the next statement on.

CREATE FUNCTION touch(account text, names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    named integer := coalesce(nullif(current_setting('svc.named', true), ''), '0');
BEGIN
    IF named < 2000 THEN
        INSERT INTO changes (touched) VALUES (names);
        PERFORM set_config('svc.named', (named + 1)::text, true);
    ELSIF current_setting('svc.whole', true) IS DISTINCT FROM account THEN
        INSERT INTO changes (touched) VALUES (ARRAY['*:' || account]);
        PERFORM set_config('svc.whole', account, true);
    END IF;
END
$$;

CREATE FUNCTION touch_everything() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (touched) VALUES ('{*}');
    RETURN NULL;
END
$$;

CREATE FUNCTION touch_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM touch(OLD.account, ARRAY['k:' || OLD.account]);
    END IF;
    IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND OLD.account <> NEW.account THEN
        PERFORM touch(NEW.account, ARRAY['k:' || NEW.account]);
    END IF;
    RETURN NULL;
END
$$;

-- The argument is the letter of the names.

CREATE FUNCTION touch_role() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM touch(split_part(OLD.role_id, ':', 1), ARRAY[TG_ARGV[0] || OLD.role_id]);
    END IF;
    IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND OLD.role_id <> NEW.role_id THEN
        PERFORM touch(split_part(NEW.role_id, ':', 1), ARRAY[TG_ARGV[0] || NEW.role_id]);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION touch_resource() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM touch(split_part(OLD.resource_id, ':', 1), ARRAY[TG_ARGV[0] || OLD.resource_id]);
    END IF;
    IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND OLD.resource_id <> NEW.resource_id THEN
        PERFORM touch(split_part(NEW.resource_id, ':', 1), ARRAY[TG_ARGV[0] || NEW.resource_id]);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION touch_membership() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM touch(split_part(OLD.role_id, ':', 1), ARRAY['m:' || OLD.member_id, 'g:' || OLD.role_id]);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM touch(split_part(NEW.role_id, ':', 1), ARRAY['m:' || NEW.member_id, 'g:' || NEW.role_id]);
    END IF;
    RETURN NULL;
END
$$;

-- For each table three triggers for its rows, since a condition may not speak of a row that there isn't, and one for TRUNCATE.

DO $$
DECLARE
    watched record;
BEGIN
    FOR watched IN SELECT * FROM (VALUES
        ('accounts', 'account', 'touch_account()'),
        ('signing_keys', 'account', 'touch_account()'),
        ('roles', 'role_id', 'touch_role(''r:'')'),
        ('credentials', 'role_id', 'touch_role(''c:'')'),
        ('restrictions', 'role_id', 'touch_role(''c:'')'),
        ('memberships', 'role_id', 'touch_membership()'),
        ('resources', 'resource_id', 'touch_resource(''r:'')'),
        ('permissions', 'resource_id', 'touch_resource(''r:'')'),
        ('annotations', 'resource_id', 'touch_resource(''r:'')'),
        ('secrets', 'resource_id', 'touch_resource(''v:'')'),
        ('authenticator_switches', 'resource_id', 'touch_resource(''w:'')'),
        ('key_refreshes', 'resource_id', 'touch_resource(''w:'')'),
        ('distrusted_keys', 'resource_id', 'touch_resource(''w:'')')
    ) AS tables (name, id, call)
    LOOP
        EXECUTE format($sql$
            CREATE TRIGGER touched_by_insert AFTER INSERT ON %1$I FOR EACH ROW
                WHEN (current_setting('svc.whole', true) IS DISTINCT FROM split_part(NEW.%2$I, ':', 1)) EXECUTE FUNCTION %3$s;
            CREATE TRIGGER touched_by_update AFTER UPDATE ON %1$I FOR EACH ROW
                WHEN (current_setting('svc.whole', true) IS DISTINCT FROM split_part(OLD.%2$I, ':', 1)
                    OR OLD.%2$I <> NEW.%2$I) EXECUTE FUNCTION %3$s;
            CREATE TRIGGER touched_by_delete AFTER DELETE ON %1$I FOR EACH ROW
                WHEN (current_setting('svc.whole', true) IS DISTINCT FROM split_part(OLD.%2$I, ':', 1)) EXECUTE FUNCTION %3$s;
            CREATE TRIGGER touched_by_truncate AFTER TRUNCATE ON %1$I FOR EACH STATEMENT EXECUTE FUNCTION touch_everything();
            ALTER TABLE %1$I ENABLE ALWAYS TRIGGER touched_by_insert, ENABLE ALWAYS TRIGGER touched_by_update,
                ENABLE ALWAYS TRIGGER touched_by_delete, ENABLE ALWAYS TRIGGER touched_by_truncate;
        $sql$, watched.name, watched.id, watched.call);
    END LOOP;
END
$$;
