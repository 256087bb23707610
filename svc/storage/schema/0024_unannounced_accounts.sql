-- expand
-- locks accounts: share row exclusive, at once

-- Accounts that a start has made, until that server, or a later one, has written that it is ready: until then each start shows
-- the API key of their admin.

CREATE TABLE unannounced_accounts (account text COLLATE "C" PRIMARY KEY REFERENCES accounts ON DELETE CASCADE);
