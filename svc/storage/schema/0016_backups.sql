-- expand

-- When `svc backup create` last made a backup, for metrics and `svc doctor`: one row, NULL before the first.

CREATE TABLE backups (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    made_at timestamptz
);

INSERT INTO backups DEFAULT VALUES;
