-- What operators tell an authenticator, by its webservice.

CREATE TABLE authenticator_switches (
    resource_id text COLLATE "C" PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
    enabled boolean NOT NULL
);

-- The numbers of wishes for newer keys come from one sequence: two authenticators may have one provider, whose keys are
-- fetched when a number comes that is larger than any before.

CREATE SEQUENCE key_refresh_numbers;

CREATE TABLE key_refreshes (
    resource_id text COLLATE "C" PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
    refreshes bigint NOT NULL
);

-- A key is named by its id or by its thumbprint.

CREATE TABLE distrusted_keys (
    resource_id text COLLATE "C" NOT NULL REFERENCES resources ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    distrusted_by text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (resource_id, key)
);
