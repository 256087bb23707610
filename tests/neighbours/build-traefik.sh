#!/bin/sh
# Builds Traefik from its Go module in the folder that is named, which is made. It needs go 1.26 and some minutes.
#
# The module has requirements that aren't served as modules: providers of DNS for certificates (lego's), a fork of a library
# for passwords, and two empty types. None of them is on the way of a request to a server here, so they are left out.
set -eu
mkdir "$1"
cd "$1"
export CGO_ENABLED=0
copy() { cp -r "$(go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" "$2"; chmod -R u+w "$2"; }
copy github.com/traefik/traefik/v3@v3.7.13 source
copy github.com/go-acme/lego/v5@v5.4.1 lego
copy github.com/abbot/go-http-auth@v0.4.0 auth
mkdir ext
printf 'module github.com/traefik/traefik/dynamic/ext\n' > ext/go.mod
printf 'package ext\ntype HTTP struct{}\ntype Router struct{}\n' > ext/ext.go
printf 'module github.com/abbot/go-http-auth\n' > auth/go.mod
cat > auth/more.go <<'GO'
package auth
import "net/http"
func CheckSecret(string, string) bool { return false }
func (a *DigestAuth) RequireAuthStale(w http.ResponseWriter, r *http.Request) { a.RequireAuth(w, r) }
GO
cat > lego/providers/dns/zz_gen_dns_providers.go <<'GO'
package dns
import ("errors"; "github.com/go-acme/lego/v5/challenge")
func NewDNSChallengeProviderByName(string) (challenge.Provider, error) { return nil, errors.New("none") }
GO
cd source
go mod edit -replace github.com/traefik/traefik/dynamic/ext=../ext -replace github.com/abbot/go-http-auth=../auth -replace github.com/go-acme/lego/v5=../lego
go build -mod=mod -o ../traefik ./cmd/traefik
