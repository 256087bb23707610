-- A session plans each statement once, perhaps before there is anything to plan for. While a table is as good as empty, it is
-- all the same to PostgreSQL by which of its indexes it is read, and whether from end to end. So no table that has several is
-- ever empty: these hosts are in the account that nobody can have.

INSERT INTO roles (role_id) SELECT '!:host:' || number FROM generate_series(1, 200) AS number;
INSERT INTO resources (resource_id, owner_id) SELECT role_id, role_id FROM roles WHERE role_id LIKE '!:host:%';
INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    SELECT role_id, role_id, true, true FROM roles WHERE role_id LIKE '!:host:%';
INSERT INTO permissions (resource_id, privilege, role_id)
    SELECT role_id, 'read', role_id FROM roles WHERE role_id LIKE '!:host:%';
INSERT INTO annotations (resource_id, name, value)
    SELECT role_id, 'number', 'none' FROM roles WHERE role_id LIKE '!:host:%';

-- What a search looks through: for each resource the words of its identifier and of the annotation "name" (weight A), of other
-- annotations (B), and of its kind (C). In "split" annotation values are split at . / - as identifiers are, in "plain" not.

CREATE TABLE documents (
    resource_id text COLLATE "C" PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
    split tsvector NOT NULL,
    plain tsvector NOT NULL
);

-- The documents as they should be. Longer values are cut, since a tsvector holds one megabyte. What parts two values ends
-- everything that the parser of words could take for one.

CREATE VIEW searchable (resource_id, split, plain) AS
SELECT
    resource_id,
    common || setweight(to_tsvector('english', translate(title, './-', '   ')), 'A')
        || setweight(to_tsvector('english', translate(others, './-', '   ')), 'B'),
    common || setweight(to_tsvector('english', title), 'A') || setweight(to_tsvector('english', others), 'B')
FROM resources
    CROSS JOIN LATERAL (
        SELECT
            coalesce(left(string_agg(value, '') FILTER (WHERE name = 'name'), 32768), '') AS title,
            coalesce(left(string_agg(value, ' | ' ORDER BY name) FILTER (WHERE name <> 'name'), 32768), '') AS others
        FROM annotations WHERE annotations.resource_id = resources.resource_id
    ) AS annotated
    CROSS JOIN LATERAL (
        SELECT setweight(to_tsvector('english', translate(substr(
                resource_id, length(split_part(resource_id, ':', 1)) + length(split_part(resource_id, ':', 2)) + 3
            ), './-', '   ')), 'A') || setweight(to_tsvector('english', split_part(resource_id, ':', 2)), 'C') AS common
        OFFSET 0
    ) AS named;

-- What is not merged into an index yet, up to so many kilobytes of it, every search has to read.

INSERT INTO documents SELECT resource_id, split, plain FROM searchable;
CREATE INDEX documents_split ON documents USING gin (split) WITH (gin_pending_list_limit = 256);
CREATE INDEX documents_plain ON documents USING gin (plain) WITH (gin_pending_list_limit = 256);

-- The documents that match a query, no more than so many, or all where that is NULL, found in the index, whatever the size of
-- the table was when this was planned: nothing but a bitmap can be made of a GIN index, and here nothing else is allowed.

CREATE FUNCTION search_documents(query tsquery, in_split boolean, most bigint) RETURNS TABLE (resource_id text, document tsvector)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off
AS $$
BEGIN
    IF in_split THEN
        RETURN QUERY SELECT found.resource_id, found.split FROM documents AS found WHERE found.split @@ query LIMIT most;
    ELSE
        RETURN QUERY SELECT found.resource_id, found.plain FROM documents AS found WHERE found.plain @@ query LIMIT most;
    END IF;
END
$$;

-- What a role is a member of is listed in order, too.

DROP INDEX memberships_by_member;
CREATE INDEX memberships_by_member ON memberships (member_id, role_id, ownership);
