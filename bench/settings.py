"""Every setting that could flatter a figure, pinned in one place.

A figure is only comparable with another that was taken under the same values; they are printed with every report.
"""

from __future__ import annotations

import os
from typing import Final

#: Bits of the provider's RSA key, and the algorithm of its tokens.
KEY_BITS: Final = 2048
ALGORITHM: Final = "RS256"

#: Bytes of JSON in the claims of each token.
CLAIMS_BYTES: Final = 600

#: Hosts in policy, each with its own token, each with this many annotations that are compared.
HOSTS: Final = 10_000
ANNOTATIONS: Final = 3

#: The reactor of the service and of the references.
REACTOR: Final = "epoll"

#: Variables with a value, each readable by one host, and all of them by another, at once.
VARIABLES: Final = 150

#: Logins that are refused, for each reason; and hosts that don't exist, each of which is requested once or twice.
REFUSED: Final = 500
UNKNOWN: Final = 200_000

#: Members of the group that is listed, without its owner, and how many of them at once.
MEMBERS: Final = 1001
MEMBERS_PAGE: Final = 10

#: Connections that ``wrk`` holds open (keep-alive), its threads, and the seconds of each run.
CONNECTIONS: Final = 16
THREADS: Final = 1
SECONDS: Final = 4

#: Seconds of a run beforehand, in which every host logs in or reads at least once: the read cache is filled by then.
WARM_SECONDS: Final = 12

#: Alternating runs of each route and its reference; the median is reported.
RUNS: Final = 5

#: Turns of one server and of a primary with followers.
FOLLOWERS_RUNS: Final = 3

#: The largest lag of a follower that is measured, in seconds; a heartbeat comes each second.
FOLLOWERS_LAG: Final = 3

#: Runs of each route with the audit, in turns with as many without, and the seconds of each. The difference is a few
#: microseconds: many short turns see the machine in the same state. After an even number the audit is on again.
AUDIT_RUNS: Final = 40
AUDIT_SECONDS: Final = 1

#: Records in the files that are searched and verified.
SEARCHED_RECORDS: Final = 1_000_000

#: Bytes that the ``bare`` reference answers with.
BARE_BYTES: Final = 100

#: Seconds that the server rests before its idle size is read.
IDLE_SECONDS: Final = 10

#: Connections that are open and idle, each of which has sent one request.
IDLE_CONNECTIONS: Final = 1000

#: For how many seconds a core is kept busy to measure which share of it the machine gives, and the longest time between two
#: readings of the clock, in seconds, that isn't counted as another's.
SHARE_SECONDS: Final = 2
SHARE_GAP_SECONDS: Final = 0.001

#: The server runs as one process, with default settings but for these: no access log is written (the service has none),
#: tokens outlive the run, and what reads 900,000 rows from a slow disk is waited for. No verification of a third party's
#: token is cached (the service has no cache of these).
SERVER_OPTIONS: Final = ("--host-token-ttl=18000", "--user-token-ttl=18000", "--statement-timeout=60")

#: The large document: variables, annotations of each, and how often it is loaded, each time into a new policy.
LARGE_VARIABLES: Final = 18_000
LARGE_ANNOTATIONS: Final = 2
LARGE_RUNS: Final = 3

#: Seconds between two readings of how much memory the server's processes hold.
SAMPLE_SECONDS: Final = 0.1

#: Seconds for which a secret is read before the document is loaded beside it, and seconds between two readings.
QUIET_SECONDS: Final = 5
READ_SECONDS: Final = 0.05

#: Connections of a storm of password logins, seconds of each run of it, how many runs, and for how many seconds a login that
#: was refused with 503 waits.
STORM_CONNECTIONS: Final = 64
STORM_SECONDS: Final = 20
STORM_RUNS: Final = 5
STORM_PAUSE_SECONDS: Final = 0.5

#: Connections on each of which so many bytes of requests are sent at once, and for how many seconds somebody else asks.
PIPELINING_CONNECTIONS: Final = 20
PIPELINED_BYTES: Final = 360 * 1024
PIPELINING_SECONDS: Final = 10

#: How often requests that may block the event loop are sent; the whole list only once, since it does the same many times.
LOOP_RUNS: Final = 3

#: Seconds between two beats of a watched event loop, and between two questions of the probe from outside.
BEAT_SECONDS: Final = 0.02
PROBE_SECONDS: Final = 0.02

#: How often a server's counters are read while they are watched.
COUNTS_A_SECOND: Final = 4

#: Policies that others change, hosts that they make, and values that they write, each so many a second; and the seconds for
#: which they, or nobody, are alone with the server.
CHANGES_A_SECOND: Final = 10
ALONE_SECONDS: Final = 4

#: Hosts of each sort that a stopwatch asks for once; those of each that it asks for again and again, and how often.
STOPWATCH_ONCE: Final = 1000
STOPWATCH_SUBJECTS: Final = 100
STOPWATCH_TIMES: Final = 25

#: Connections that ``wrk`` holds open to one process and to two: so many that both have about half of them.
PROCESSES_CONNECTIONS: Final = 64

#: Roles of the load on a server that was started again, and its seconds, in the later half of which the rate is steady.
RESTART_ROLES: Final = 1000
RESTART_SECONDS: Final = 15

#: Hosts each of which reads so many secrets until the read cache of the server is full, in megabytes, or for so many runs.
FILL_HOSTS: Final = 1000
FILL_VARIABLES: Final = 100
FILL_BATCH: Final = 20
FILL_MEGABYTES: Final = 60
FILL_RUNS: Final = 8
FILL_SECONDS: Final = 10

#: Members of the two groups that are compared, and how many members of each a search matches.
MANY: Final = 1_000_000
FEW: Final = 1000
MATCHES: Final = 50

#: Members on a page; rounds of alternating questions to both groups, of which the median counts; questions to each in one.
PAGE: Final = 100
ROUNDS: Final = 5
QUESTIONS: Final = 200

#: How often the roles with a privilege are requested.
ACCESS_QUESTIONS: Final = 50

#: How far into the large group the page by offset lies, and how often it is requested, in turns with PostgreSQL itself.
DEEP_OFFSET: Final = 900_000
DEEP_QUESTIONS: Final = 15

#: Members on the longest page that is requested while the event loop is watched.
LONG_PAGE: Final = 10_000

#: Connections of either pool, each with a read in flight; reads in a round, and rounds in turns.
DRIVER_CONNECTIONS: Final = (1, 8)
DRIVER_READS: Final = 2000
DRIVER_ROUNDS: Final = 7

#: The most processor time that a read through our sessions may take, as a part of what it takes through those of txpostgres.
DRIVER_RATIO: Final = 0.7

#: Resources of the account whose pages of the console are opened, and how often each page is.
CONSOLE_RESOURCES: Final = 100_000
CONSOLE_VIEWS: Final = 40

#: Resources of the database that is backed up and restored.
BACKED_UP: Final = int(os.environ.get("BENCH_BACKED_UP", "1000000"))

#: Values that are sealed again when the data key is rotated, of how many variables, which are read meanwhile; and for how
#: many seconds.
RESEALED: Final = 10_000
RESEALED_READ: Final = 500
RESEALED_SECONDS: Final = 8
