-- expand

-- Which role read which variable, how often, and when. A pair is two integers, so that twenty million pairs take less than
-- 3 GB with their indexes. A variable is one of this id that was made at that moment: what policy makes anew under the id has
-- no reads, and what is restored, which keeps its moment, has those from before. None of these tables refers to a resource or
-- a role, so that writing a count never waits for a load. Rows to which nothing refers any more are purged.

CREATE TABLE read_variables (
    variable integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id text COLLATE "C" NOT NULL,
    made_at timestamptz NOT NULL,
    last_day date NOT NULL,
    UNIQUE (resource_id, made_at)
);
CREATE TABLE readers (
    reader integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role_id text COLLATE "C" NOT NULL,
    creation bigint NOT NULL,
    UNIQUE (role_id, creation)
);

-- Bit 0 of days is last_day, bit 1 the day before, and so on. Columns are in this order because of their alignment.

CREATE TABLE readings (
    days bigint NOT NULL,
    count bigint NOT NULL,
    variable integer NOT NULL REFERENCES read_variables ON DELETE CASCADE,
    reader integer NOT NULL REFERENCES readers ON DELETE CASCADE,
    last_day date NOT NULL,
    PRIMARY KEY (variable, reader)
) WITH (fillfactor = 90);
CREATE INDEX readings_by_reader ON readings (reader);

-- The last batch of counts of each server, so that none is added twice; since when reads are counted; the other servers, as
-- those that collect from them know them; and days on which reads were not counted.

CREATE TABLE reading_sources (
    source text COLLATE "C" PRIMARY KEY,
    sequence bigint NOT NULL,
    added_at timestamptz NOT NULL
);
CREATE TABLE reading_servers (
    server text COLLATE "C" PRIMARY KEY,
    heard_at timestamptz,
    asked_at timestamptz NOT NULL
);
CREATE TABLE reading_losses (day date PRIMARY KEY);
CREATE TABLE readings_kept (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    since timestamptz NOT NULL DEFAULT now()
);
INSERT INTO readings_kept DEFAULT VALUES;

-- As in 0003, no table that has several indexes is ever empty.

INSERT INTO read_variables (resource_id, made_at, last_day)
    SELECT '/:variable:' || number, '-infinity', 'epoch' FROM generate_series(1, 200) AS number;
INSERT INTO readers (role_id, creation) SELECT '/:host:' || number, 0 FROM generate_series(1, 200) AS number;
INSERT INTO readings (days, count, variable, reader, last_day)
    SELECT 1, 1, variable, reader, 'infinity'
    FROM read_variables JOIN readers ON split_part(resource_id, ':', 3) = split_part(role_id, ':', 3);
