#!/bin/sh
# pyOpenSSL doesn't say why a certificate isn't accepted.
#
# One would expect the words of `openssl s_client` and of Python's own ssl module: "certificate has expired", "self-signed
# certificate", "unable to get local issuer certificate". The exception of pyOpenSSL has one sentence for all of them,
# "certificate verify failed", and the connection has no method that returns the result of the verification. A callback
# gets it, which then decides about the certificate, too.
#
# This server reads SSL_get_verify_result from the library below, without a callback, and puts its words into the log.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyOpenSSL==26.4.0 cryptography==50.0.2
"$folder/venv/bin/python" - <<'PYTHON'
import datetime
import ssl
import sys

import OpenSSL
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

START = datetime.datetime(2024, 1, 1)


def issue(name, issuer, key, signer, days, ca):
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(START).not_valid_after(START + datetime.timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(signer, SHA256())


def carry(source, target):
    try:
        while True:
            target.bio_write(source.bio_read(65536))
    except SSL.WantReadError:
        pass


def by_pyopenssl(leaf, key, trusted):
    serving, asking = SSL.Context(SSL.TLS_SERVER_METHOD), SSL.Context(SSL.TLS_CLIENT_METHOD)
    serving.use_certificate(leaf)
    serving.use_privatekey(key)
    asking.set_verify(SSL.VERIFY_PEER)
    if trusted is not None:
        asking.get_cert_store().add_cert(OpenSSL.crypto.X509.from_cryptography(trusted))
    server, client = SSL.Connection(serving), SSL.Connection(asking)
    server.set_accept_state()
    client.set_connect_state()
    for _ in range(6):
        for one, other in ((client, server), (server, client)):
            try:
                one.do_handshake()
            except SSL.WantReadError:
                pass
            except SSL.Error as error:
                if one is client:
                    return str(error)
                raise
            carry(one, other)
    raise AssertionError("it is accepted")


def by_ssl(leaf, key, trusted, folder="."):
    pem = leaf.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(f"{sys.prefix}/leaf.pem", "wb") as file:
        file.write(pem)
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    serving.load_cert_chain(f"{sys.prefix}/leaf.pem")
    asking.check_hostname = False
    if trusted is not None:
        asking.load_verify_locations(cadata=trusted.public_bytes(Encoding.PEM).decode())
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = serving.wrap_bio(here, there, server_side=True), asking.wrap_bio(there, here)
    for _ in range(6):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            pass
    raise AssertionError("it is accepted")


root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
root = issue("root", "root", root_key, root_key, 36500, True)
cases = {
    "expired": (issue("host", "root", key, root_key, 1, False), root),
    "signed by itself": (issue("host", "host", key, key, 36500, False), root),
    "of an unknown authority": (issue("host", "other", key, root_key, 36500, False), root),
}
print(f"pyOpenSSL {OpenSSL.__version__}, Python {sys.version.split()[0]} with {ssl.OPENSSL_VERSION}")
told, words = set(), set()
for name, (leaf, trusted) in cases.items():
    first, second = by_pyopenssl(leaf, key, trusted), by_ssl(leaf, key, trusted)
    told.add(first)
    words.add(second)
    print(f"a certificate {name}:\n  pyOpenSSL: {first}\n  ssl:       {second}")
methods = [name for name in dir(SSL.Connection) if "verify" in name and "result" in name]
print(f"methods of a connection that return the result: {methods}")
if len(told) != 1 or len(words) != 3 or methods:
    sys.exit("the behaviour has changed")
print("As it was: one sentence for all of them.")
PYTHON
