"""The read cache: answers of the store, kept while they are known to hold.

Note [Never a wrong answer]. A wrong answer from the cache would be a hole in the security of everything else. This note
proves that there is none. The guarantees (CLU-31 to CLU-35): a request sees every change that any process of its server
confirmed to anybody before the request began, and every change that others made ``--memory-lag`` before. Each answer is one
that the database gave, whole, in that time.

A *change* leaves its trace in the transaction that makes it: triggers write the names of the rows that it touched into the
table ``changes`` (``storage/schema/0010_changes.sql``), whichever program makes it. A *read* returns with its rows the names
of everything that they follow from (``storage/sql/dependencies.py``), absent rows included. A *poll* returns a snapshot, and
the names of the changes that were committed between the last poll and this one (``invalidation_poll``). A *slot* counts the
commits of one process, on a page that all processes of a server share (``commit_counters``).

Let H be the snapshot of the poll that was processed last.

1. Snapshots of one running PostgreSQL are in one order: each sees all that the earlier ones saw. On a primary, transactions
   become visible one after the other; on a standby, as they are replayed.
2. The result of a read depends only on rows that its names cover. So a transaction that touches none of them doesn't
   change it.
3. *Every cached answer is the database's at H, or at a later snapshot.* The answer came from statements with one snapshot S,
   which were sent after a poll P had been processed. So S saw all that P saw. If S came before H, then every transaction
   that H saw and S didn't was found by a poll after P: one that touched the answer's names kept it from being cached, or
   dropped it. By 2, the answer is that of H too. If S came after H, the answer is the database's own. So an answer may be
   cached as soon as it arrives: a poll that is under way has yet to drop what it finds.
4. *H is new enough.* A process answers from the cache only if no slot has moved since before the poll was sent, and that was
   at most the lag ago. Otherwise it waits for a poll that is sent later. A process raises its slot after each COMMIT that
   isn't known to have failed, before anybody learns of it. So H saw all that this server confirmed before the request began,
   and all that was committed anywhere until the lag before. Polls and commits may be on different PostgreSQLs, so a slot
   also has the version of the state after the commit, and a poll returns how far its PostgreSQL was before the snapshot. A
   poll that was not so far confirms nothing, and the database is asked.
5. *It is one history.* Step 1 holds as long as one PostgreSQL runs. All polls are made on one session; when that ends, the
   cache is dropped, and reads under way aren't cached. Nor are reads that another PostgreSQL answered.

With ``--read-from standby`` polls are made on the standby that reads go to, and by step 4 they confirm nothing before it
has come so far. When reads go to another standby, or to none, the session of polls ends (step 5). One thing is not
promised: a standby shows a commit as soon as it has replayed it, and the primary only when the synchronous standbys have
confirmed it. A request that begins at that standby and goes on with the primary may see the commit, then not.

Note [Traps]. Permission and value are read by one statement, and never one from the cache and the other from the database:
after a revocation and a new value, that would be a value which this caller never could read. So are a list and who may see
it: where one statement is not enough, the transaction has to be ``REPEATABLE READ``. Not every table has triggers: an answer
that shows rows of a table without them isn't cached. A value that expires takes its remaining time along, counted from when
the statement was sent, by a clock that nobody sets. Strangers must not be able to measure whether a role is cached: refused
logins are answered at a steady pace (``authn/throttling``).

Other ways were not taken: ``LISTEN`` is refused on a standby, a sequence is visible before the commit, a row that every
writer updates makes writers wait for each other, and one counter for all processes loses updates.
"""
