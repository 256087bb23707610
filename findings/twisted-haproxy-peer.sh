#!/bin/sh
# Behind Twisted's haproxy: endpoint the peer of a connection is the proxy when the connection is made, and the client later.
#
# One would expect transport.getPeer() in connectionMade to be the address that is right: that is where protocols read it. But
# Twisted makes the protocol before the PROXY header was read, so it answers with the proxy's address there, and with the
# client's from the first dataReceived on. The endpoint starts and asks for the header, and everything that goes by addresses
# goes by the proxy. Besides, "PROXY UNKNOWN" without more, which the specification demands to accept, closes the connection.
#
# This server reads the header itself, before it makes the protocol.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check twisted==26.10.0
"$place/venv/bin/python" - <<'PYTHON'
import sys
import twisted
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, serverFromString
from twisted.internet.protocol import Factory, Protocol

seen = {}

class Server(Protocol):
    def connectionMade(self):
        seen["connectionMade"] = self.transport.getPeer().host
    def dataReceived(self, data):
        seen["dataReceived"] = self.transport.getPeer().host
        self.transport.loseConnection()

class Client(Protocol):
    def __init__(self, header):
        self.header = header
    def connectionMade(self):
        self.transport.write(self.header + b"hello")
    def connectionLost(self, reason):
        results.append(dict(seen))
        seen.clear()
        begin()

headers = [b"PROXY TCP4 198.51.100.7 127.0.0.1 4000 443\r\n", b"PROXY UNKNOWN\r\n"]
results = []

def begin():
    if len(results) == len(headers):
        reactor.stop()
        return
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
    connectProtocol(endpoint, Client(headers[len(results)]))

def listening(opened):
    global port
    port = opened
    begin()

serverFromString(reactor, "haproxy:tcp:0:interface=127.0.0.1").listen(Factory.forProtocol(Server)).addCallback(listening)
reactor.callLater(20, reactor.stop)
reactor.run()
print("Twisted", twisted.__version__)
for header, result in zip(headers, results):
    print(header.decode().strip(), "->", result)
right = results == [{"connectionMade": "127.0.0.1", "dataReceived": "198.51.100.7"}, {"connectionMade": "127.0.0.1"}]
sys.exit(0 if right else 1)
PYTHON
