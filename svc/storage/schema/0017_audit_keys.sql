-- expand

-- The sealed key of the audit's digests (docs/spec/audit.md): one row, from the first start of a server of this version on.

CREATE TABLE audit_keys (
    number integer PRIMARY KEY CHECK (number = 1),
    sealed bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);

SELECT guard_sealed_column('audit_keys', 'sealed');
