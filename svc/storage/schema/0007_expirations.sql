-- When a value ends, NULL when it doesn't. Of a variable that is rotated, when the newest value is to be replaced: that ends none.

ALTER TABLE secrets ADD COLUMN expires_at timestamptz;

-- What expiration has to do with a variable, one row for each that has, or had, an annotation about it. due_at: when to look at
-- it next. changed: annotations have been changed since it was looked at. edition: rises with every change from outside, so that
-- what was decided on an earlier one is dropped. failures, fault: of rotations since the last that succeeded. candidate: a value,
-- sealed, that may have been put in force elsewhere, and isn't known to be.

CREATE TABLE expirations (
    resource_id text COLLATE "C" PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    changed boolean NOT NULL DEFAULT true,
    edition bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    fault text,
    candidate bytea
);
CREATE INDEX expirations_by_due ON expirations (due_at);

-- As in 0003, the table is never empty.

INSERT INTO expirations (resource_id, due_at, changed)
    SELECT '/:host:' || number, 'infinity', false FROM generate_series(1, 200) AS number;

INSERT INTO expirations (resource_id)
    SELECT DISTINCT resource_id FROM annotations
    WHERE (name = 'expiration/ttl' OR name LIKE 'rotation/%') AND split_part(resource_id, ':', 2) = 'variable';

CREATE FUNCTION expiration_annotated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO expirations (resource_id) VALUES (NEW.resource_id)
    ON CONFLICT (resource_id) DO UPDATE SET due_at = '-infinity', changed = true, edition = expirations.edition + 1;
    RETURN NULL;
END
$$;
CREATE FUNCTION expiration_annotation_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE expirations SET due_at = '-infinity', changed = true, edition = edition + 1 WHERE resource_id = OLD.resource_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER expiration_annotated AFTER INSERT OR UPDATE ON annotations FOR EACH ROW
    WHEN ((NEW.name = 'expiration/ttl' OR NEW.name LIKE 'rotation/%') AND split_part(NEW.resource_id, ':', 2) = 'variable')
    EXECUTE FUNCTION expiration_annotated();
CREATE TRIGGER expiration_annotation_gone AFTER DELETE ON annotations FOR EACH ROW
    WHEN ((OLD.name = 'expiration/ttl' OR OLD.name LIKE 'rotation/%') AND split_part(OLD.resource_id, ':', 2) = 'variable')
    EXECUTE FUNCTION expiration_annotation_gone();
