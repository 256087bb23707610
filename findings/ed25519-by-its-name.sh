#!/bin/sh
# A key whose `alg` is Ed25519, as RFC 9864 names the algorithm, is no key to a library that knows EdDSA.
#
# Expected: RFC 9864 has deprecated the name EdDSA in favour of Ed25519 and Ed448, so that a key set with the new name works as before.
# Instead: PyJWT's set leaves the key out without a word, because of its `alg` alone, and looks as if the provider had never published it;
# the same key without `alg`, or with the old name, is there. npm's jose takes both names.
# This server takes both names as the same algorithm in its settings, in keys and in tokens.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyjwt==2.15.1 cryptography==46.0.3
npm install --silent --no-audit --no-fund jose@6.2.18 >/dev/null
cat >sets.py <<'EOF'
import json
import sys

import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

RSA, EDWARDS = jwt.algorithms.RSAAlgorithm, jwt.algorithms.OKPAlgorithm
other = {**RSA.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True), "kid": "other"}
point = {**EDWARDS.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True), "kid": "edwards"}
found = {}
for name in (None, "EdDSA", "Ed25519"):
    entry = point if name is None else {**point, "alg": name}
    found[name] = [key.key_id for key in jwt.PyJWKSet.from_dict({"keys": [other, entry]}).keys]
    print(f"PyJWT {jwt.__version__}, a set of two keys, one with alg {name}: {found[name]}")
with open("key.json", "w") as file:
    json.dump({**point, "alg": "Ed25519"}, file)
both = ["other", "edwards"]
sys.exit(0 if found == {None: both, "EdDSA": both, "Ed25519": ["other"]} else 1)
EOF
venv/bin/python sets.py
cat >key.mjs <<'EOF'
import { importJWK } from 'jose'
import { readFileSync } from 'node:fs'
const version = JSON.parse(readFileSync('node_modules/jose/package.json')).version
const key = await importJWK(JSON.parse(readFileSync('key.json')))
console.log(`jose ${version}, the same key: ${key.algorithm.name}`)
process.exit(key.algorithm.name === 'Ed25519' ? 0 : 1)
EOF
node key.mjs
