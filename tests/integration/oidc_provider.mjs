// A provider of OpenID Connect that is not of this project's making: npm's oidc-provider, with its own pages to sign in.
// Arguments: the address at which the browser comes back. It says its own address on standard output.
import { generateKeyPairSync } from 'node:crypto'
import { createServer } from 'node:http'

import Provider from 'oidc-provider'

const redirectUris = process.argv.slice(2)
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' })

const server = createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [
      { client_id: 'svc', client_secret: 'a secret + 100%', redirect_uris: redirectUris, grant_types: ['authorization_code'] },
      { client_id: 'other', client_secret: 'another', redirect_uris: redirectUris, grant_types: ['authorization_code'] },
      {
        client_id: 'svc-device',
        token_endpoint_auth_method: 'none',
        application_type: 'native',
        redirect_uris: [],
        response_types: [],
        grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
      },
    ],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['preferred_username'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['for a test'] },
    features: { deviceFlow: { enabled: true } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, email: `${id}@example.org`, email_verified: id !== 'eve' }),
    }),
    jwks: { keys: [{ ...key, kid: 'first', use: 'sig', alg: 'RS256' }] },
    pkce: { required: () => true },
  })
  server.on('request', provider.callback())
  console.log(`ready ${issuer}`)
})
