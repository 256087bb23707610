-- The events that changed something, written in the transaction of the change. They are kept for a year, whatever becomes of
-- what they tell of, and belong to the account of whoever acted, or, where that is the program, of the resource. role_id, resource_id and member_id are parameters of the
-- subject, which has the rest of them in others; operation, client_ip and so on are parameters of other structured data.

CREATE TABLE audit_events (
    account text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT now(),
    facility smallint NOT NULL,
    severity smallint NOT NULL,
    hostname text COLLATE "C" NOT NULL,
    appname text COLLATE "C" NOT NULL,
    procid text COLLATE "C" NOT NULL,
    msgid text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    authenticator text COLLATE "C",
    service text COLLATE "C",
    client_ip text COLLATE "C" NOT NULL,
    policy_id text COLLATE "C",
    policy_version integer,
    role_id text COLLATE "C",
    resource_id text COLLATE "C",
    member_id text COLLATE "C",
    others jsonb NOT NULL,
    did text NOT NULL,
    PRIMARY KEY (account, number)
);
CREATE INDEX audit_events_by_time ON audit_events (at);
CREATE INDEX audit_events_by_request ON audit_events (procid, number);
CREATE INDEX audit_events_by_role ON audit_events (role_id, number) WHERE role_id IS NOT NULL;
CREATE INDEX audit_events_by_resource ON audit_events (resource_id, number) WHERE resource_id IS NOT NULL;
CREATE INDEX audit_events_by_member ON audit_events (member_id, number) WHERE member_id IS NOT NULL;

-- As in 0003, the table is never empty. Nobody is told of the account "/".

INSERT INTO audit_events (
    account, at, facility, severity, hostname, appname, procid, msgid, operation, user_id, client_ip, role_id, resource_id,
    member_id, others, did
)
    SELECT '/', 'infinity', 10, 7, '-', '-', number::text, 'health', 'check', '/:user:' || number, '-', '/:user:' || number,
        '/:host:' || number, '/:user:' || number, '{}', 'was there'
    FROM generate_series(1, 200) AS number;

-- What was recorded stays as it is, and as long as it has to: not even the program changes it by mistake.

CREATE FUNCTION keep_audit_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.at < now() - interval '365 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'events of the audit can''t be changed, nor removed before a year has passed';
END
$$;
CREATE TRIGGER audit_events_stay BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION keep_audit_events();
CREATE TRIGGER audit_events_stay_all BEFORE TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION keep_audit_events();
