-- expand

-- Answers to changes that a client named by a key, each in sealed pieces, with a digest of the request. They are kept for ten
-- minutes. A caller is a role with its creation, a host factory's token by its digest, or an API key by its digest. Nothing of
-- this is remembered, so that its changes have no names (0010).

CREATE TABLE kept_answers (
    caller text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    piece integer NOT NULL,
    request bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed bytea NOT NULL,
    PRIMARY KEY (caller, key, piece)
);
CREATE INDEX kept_answers_by_age ON kept_answers (made_at);

SELECT guard_sealed_column('kept_answers', 'sealed');
