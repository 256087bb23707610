-- A number that no other role of this name has had, nor will have: access tokens name it, and prove nothing to the next role
-- of the name. It has 53 bits, so that every reader of JSON takes it for what it is. It is made at random, here, whoever adds
-- the role, so that neither a restored backup nor a second primary gives it again. What was there before the numbers has 0,
-- and tokens without a number.

ALTER TABLE roles ADD COLUMN creation bigint NOT NULL DEFAULT 0;
ALTER TABLE roles ALTER COLUMN creation SET DEFAULT (hashtextextended(gen_random_uuid()::text, 0) & 9007199254740991);
