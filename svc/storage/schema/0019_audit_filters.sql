-- expand
-- locks audit_events: share, reads all

-- Events of one role, whose id has its account, and of one operation in an account, the newest first: of an account that has
-- millions, few may be such. An index on the account itself would be taken for that of the key as long as the table is small.

CREATE INDEX audit_events_by_user ON audit_events (user_id, number);
CREATE INDEX audit_events_by_operation ON audit_events ((account || ' ' || operation), number);
