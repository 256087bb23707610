// The administration of a server through conjur-api-go: every line of the output is compared by test_go.py.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/cyberark/conjur-api-go/conjurapi"
	"github.com/cyberark/conjur-api-go/conjurapi/authn"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func done(err error) {
	must(0, err)
}

func main() {
	config := must(conjurapi.LoadConfig())
	client := must(conjurapi.NewClientFromEnvironment(config))
	newer := client.V2()
	say := fmt.Println

	say("version", must(client.ServerVersion()))
	policy := must(os.ReadFile(os.Args[1]))
	say("dry run", must(client.DryRunPolicy(conjurapi.PolicyModePost, "root", strings.NewReader("- !user x\n"))).Status)
	say("loaded", must(client.LoadPolicy(conjurapi.PolicyModePost, "root", strings.NewReader(string(policy)))).Version)
	for name, value := range map[string]string{"apps/db/user": "shop", "apps/db/password": "s3cret"} {
		done(client.AddSecret(name, value))
	}
	must(newer.CreateBranch(conjurapi.Branch{Name: "conjur", Branch: "/"}))
	must(newer.CreateBranch(conjurapi.Branch{Name: "authn-jwt", Branch: "conjur"}))
	data := map[string]any{
		"jwks_uri": os.Args[2], "issuer": os.Args[3], "audience": os.Args[4],
		"identity": map[string]any{"token_app_property": "app", "identity_path": "apps"},
	}
	made := must(newer.CreateAuthenticator(&conjurapi.AuthenticatorBase{Type: "jwt", Name: "ci", Data: data}))
	say("authenticator", made.Type, made.Name, *made.Enabled, made.Branch)
	say("authenticators", must(newer.ListAuthenticators()).Count)
	say("switched", *must(newer.UpdateAuthenticator("jwt", "ci", false)).Enabled)
	say("switched", *must(newer.UpdateAuthenticator("jwt", "ci", true)).Enabled)

	branch := must(newer.CreateBranch(conjurapi.Branch{Name: "team", Branch: "apps", Annotations: map[string]string{"color": "red"}}))
	say("branch", branch.Branch, branch.Name, branch.Annotations)
	must(newer.UpdateBranch(conjurapi.Branch{Name: "apps/team", Annotations: map[string]string{"color": "blue"}}))
	say("branch", must(newer.ReadBranch("apps/team")).Annotations)
	must(newer.DeleteBranch("apps/team"))
	_, err := newer.ReadBranch("apps/team")
	say("gone", err != nil && strings.Contains(err.Error(), "404"))

	shop := conjurapi.GroupMember{ID: "apps/shop", Kind: "host"}
	for _, group := range []string{"conjur/authn-jwt/ci/apps", "apps/readers"} {
		member := must(newer.AddGroupMember(group, shop))
		say("member", group, member.Kind, member.ID)
	}
	say("members", len(must(client.RoleMembers("acme:group:apps/readers"))))
	say("memberships", must(client.RoleMembershipsAll("acme:host:apps/shop")))
	say("may", must(client.CheckPermissionForRole("acme:variable:apps/db/user", "acme:host:apps/shop", "execute")))
	say("hosts", must(client.ResourcesCount(&conjurapi.ResourceFilter{Kind: "host", Search: "shop"})).Count)

	key := must(client.RotateHostAPIKey("apps/shop"))
	host := must(conjurapi.NewClientFromKey(config, authn.LoginPair{Login: "host/apps/shop", APIKey: string(key)}))
	say("reads", string(must(host.RetrieveSecret("apps/db/password"))))
	say("reads", string(must(host.RetrieveSecretWithVersion("apps/db/password", 1))))
	must(newer.RemoveGroupMember("apps/readers", shop))
	_, err = host.RetrieveSecret("apps/db/password")
	say("refused", err != nil)
	must(newer.AddGroupMember("apps/readers", shop))
	say("policy", strings.HasPrefix(string(must(client.FetchPolicy("root", false, 64, 100000))), "---"))
}
