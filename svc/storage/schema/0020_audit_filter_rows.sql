-- expand

-- As in 0008. Of one operation alone, the index on it would be taken for that of the key.

INSERT INTO audit_events (
    account, at, facility, severity, hostname, appname, procid, msgid, operation, user_id, client_ip, role_id, resource_id,
    member_id, others, did
)
    SELECT '/', 'infinity', 10, 7, '-', '-', 'o' || number, 'health', 'check-' || number, '/:user:o' || number, '-',
        '/:user:o' || number, '/:host:o' || number, '/:user:o' || number, '{}', 'was there'
    FROM generate_series(1, 200) AS number;
