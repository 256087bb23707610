// A program that somebody writes with a client generated from the OpenAPI document: it logs in, and reads a secret.
import createClient from "openapi-fetch";
import type { paths } from "./svc.js";

declare const process: { argv: string[] };

const [url, login, key] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url });
const raw = (body: unknown) => body as string;

const loggedIn = await client.POST("/authn/{account}/{login}/authenticate", {
  params: { path: { account: "acme", login } },
  headers: { "Content-Type": "text/plain" },
  body: key,
  bodySerializer: raw,
});
const token = loggedIn.data;
if (typeof token !== "object" || !("protected" in token)) throw new Error(`no access token: ${loggedIn.response.status}`);
const headers = { Authorization: `Token token="${btoa(JSON.stringify(token))}"` };

const secret = await client.GET("/secrets/{account}/variable/{identifier}", {
  params: { path: { account: "acme", identifier: "app/password" } },
  headers,
  parseAs: "text",
});
const missing = await client.GET("/secrets/{account}/variable/{identifier}", {
  params: { path: { account: "acme", identifier: "app/none" } },
  headers,
});
const both = await client.POST("/authn/{account}/{login}/authenticate", {
  params: { path: { account: "acme", login }, query: { secrets: "acme:variable:app/password" } },
  headers: { "Content-Type": "text/plain" },
  body: key,
  bodySerializer: raw,
});
const caller = await client.GET("/whoami", { headers });
console.log(
  JSON.stringify({
    secret: secret.data,
    missing: typeof missing.error === "object" && "error" in missing.error ? missing.error.error.code : null,
    both: typeof both.data === "object" && "values" in both.data ? both.data.values : null,
    caller: caller.data?.username,
  }),
);
