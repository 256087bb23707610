#!/bin/sh
# One key listed twice under one id: a set that one library takes and another refuses as a whole.
#
# Expected: a key that is listed twice is one key. An API server of Kubernetes lists it so when two of its key files hold it.
# Instead: npm's jose refuses every token that names the id (ERR_JWKS_MULTIPLE_MATCHING_KEYS), and PyJWT takes the first.
# This server compares thumbprints: equal keys of one id are one, different ones must be for different algorithms.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyjwt==2.15.1 cryptography==46.0.3
npm install --silent --no-audit --no-fund jose@6.2.18 >/dev/null
cat >make.py <<'EOF'
import json

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

key = rsa.generate_private_key(65537, 2048)
entry = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "a", "alg": "RS256", "use": "sig"}
token = jwt.encode({"sub": "x"}, key, "RS256", headers={"kid": "a"})
with open("set.json", "w") as file:
    json.dump({"keys": [entry, entry], "token": token}, file)
found = jwt.PyJWKSet.from_dict({"keys": [entry, entry]})["a"]
print(f"PyJWT {jwt.__version__}, the same key twice under one id:", jwt.decode(token, found, ["RS256"]))
EOF
venv/bin/python make.py
cat >verify.mjs <<'EOF'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { readFileSync } from 'node:fs'
const { keys, token } = JSON.parse(readFileSync('set.json'))
const version = JSON.parse(readFileSync('node_modules/jose/package.json')).version
const { payload } = await jwtVerify(token, createLocalJWKSet({ keys: [keys[0]] }))
console.log(`jose ${version}, the key once:`, payload)
const code = await jwtVerify(token, createLocalJWKSet({ keys })).then(() => 'admitted', (error) => error.code)
console.log(`jose ${version}, the same key twice under one id:`, code)
process.exit(code === 'ERR_JWKS_MULTIPLE_MATCHING_KEYS' ? 0 : 1)
EOF
node verify.mjs
