"""Every setting that could flatter a figure, pinned in one place.

A figure is only comparable with another that was taken under the same values; they are printed with every report.
"""

from __future__ import annotations

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

#: Variables with a value, each readable by one host.
VARIABLES: Final = 100

#: Members of the group that is listed.
MEMBERS: Final = 10

#: Connections that ``wrk`` holds open (keep-alive), its threads, and the seconds of each run.
CONNECTIONS: Final = 16
THREADS: Final = 1
SECONDS: Final = 4

#: Alternating runs of each route and its reference; the median is reported.
RUNS: Final = 5

#: Bytes that the ``bare`` reference answers with.
BARE_BYTES: Final = 100

#: Seconds that the server rests before its idle size is read.
IDLE_SECONDS: Final = 10

#: The server runs as one process, with default settings but for these: no access log is written (the service has none), and
#: tokens outlive the run. No verification of a third party's token is remembered (the service has no such cache).
SERVER_OPTIONS: Final = ("--host-token-ttl=18000", "--user-token-ttl=18000")
