"""The suite of ``AuthenticatorStore`` and ``AuthenticatorStore``."""

from __future__ import annotations

from ipaddress import ip_network

import attrs

from svc.model.authentication import (
    ANNOTATIONS_BYTES,
    ANNOTATIONS_LIMIT,
    DISTRUSTED_LIMIT,
    WEBSERVICES_PER_ACCOUNT,
    CandidateFacts,
)
from svc.model.errors import InvalidParameter, RecordNotFound
from svc.model.names import ResourceName, RoleName, root_policy
from svc.model.policy_loads import Changes, ResourceRow, Rows
from svc.model.query_results import Sealed
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Contract,
    Draft,
    Stores,
    change,
    load,
    resource,
    role,
    scenario,
)
from tests.contracts.secrets import always

BRANCH = "svc/authn-jwt/ci"
UNDER = "authn-jwt/ci"
NAMES = ("jwks-uri", "issuer", "audience", "identity-path")

HOST = role("host:apps/web")
WEBSERVICE = resource(f"webservice:{BRANCH}")
MISSING = resource("webservice:svc/authn-jwt/none")

ADMITTED = CandidateFacts(
    etag="",
    account_exists=True,
    role_exists=True,
    webservice_exists=True,
    may_authenticate=True,
    annotations={"authn-jwt/ci/ref": "main", "authn-jwt/ci/project": "it's 100%\\"},
    signing_key="acct-1",
)


def authenticator(account: str = ACCOUNT) -> Draft:
    """An authenticator that admits a group of hosts."""
    draft = Draft(account).define(f"policy:{BRANCH}", "policy:apps")
    draft.define(f"webservice:{BRANCH}", f"group:{BRANCH}/apps", owner=f"policy:{BRANCH}")
    draft.permit(f"webservice:{BRANCH}", f"group:{BRANCH}/apps", "read", "authenticate")
    draft.define("group:apps/all", "host:apps/web", "host:apps/outside", owner="policy:apps")
    draft.grant(f"group:{BRANCH}/apps", "group:apps/all").grant("group:apps/all", "host:apps/web")
    return draft.annotate("host:apps/web", ADMITTED.annotations or {})


def variables(*names: str, branch: str = BRANCH) -> Draft:
    """Variables of the authenticator."""
    return Draft().define(*(f"variable:{branch}/{name}" for name in names))


class AuthenticatorsContract(Contract):
    """What authenticators with variables ask the store."""

    async def _edition(self, stores: Stores) -> str:
        """The etag, which all who ask are told alike."""
        settings = await stores.authenticators.read_settings(ACCOUNT, BRANCH, NAMES)
        for asking in (HOST, role("host:nobody")):
            candidate = await stores.authenticators.read_candidate(asking, BRANCH, NAMES, UNDER)
            self.assertEqual(candidate.etag, settings.etag)
        return settings.etag

    async def _applicant(self, stores: Stores, asking: RoleName, branch: str = BRANCH) -> CandidateFacts:
        candidate = await stores.authenticators.read_candidate(asking, branch, NAMES, branch.partition("/")[2])
        return attrs.evolve(candidate, etag="")

    @scenario
    async def test_settings(self) -> None:
        """Settings are those of the asked variables that are declared, set or not, and their newest values."""
        stores = await self.stores_with_account()
        await load(stores, variables("jwks-uri", "issuer", "identity-path", "other"))
        for value in (b"old", b"\x00\\new"):
            await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/jwks-uri"), always(value))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/other"), always(b"other"))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/identity-path"), always(b""))
        settings = await stores.authenticators.read_settings(ACCOUNT, BRANCH, NAMES)
        self.assertEqual(settings.values, {"jwks-uri": b"\x00\\new", "issuer": None, "identity-path": b""})

    @scenario
    async def test_no_settings(self) -> None:
        """An authenticator that nobody defined has no settings, and one etag of them."""
        stores = await self.stores_with_account("other")
        await load(stores, variables("jwks-uri"))
        for account, branch in (("other", BRANCH), ("nobody", BRANCH), (ACCOUNT, "svc/authn-jwt/ci2")):
            settings = await stores.authenticators.read_settings(account, branch, NAMES)
            self.assertEqual(settings.values, {})
            self.assertEqual(settings, await stores.authenticators.read_settings("nobody", BRANCH, NAMES))

    @scenario
    async def test_annotations_of_webservices(self) -> None:
        """Those annotations of a webservice are read that are asked for, each as far as is wanted; of others none are."""
        stores = await self.stores_with_account()
        given = {"ldap-authn/host": "é" * 20, "ldap-authn/port": "389", "other": "x"}
        await load(stores, authenticator().annotate(f"webservice:{BRANCH}", given))
        names = ("ldap-authn/host", "ldap-authn/port", "ldap-authn/uri", 'it\'s \\ "odd"')
        told = await stores.authenticators.read_annotations(WEBSERVICE, names, 10)
        self.assertEqual(told, {"ldap-authn/host": "é" * 10, "ldap-authn/port": "389"})
        self.assertEqual(await stores.authenticators.read_annotations(MISSING, names, 10), {})
        self.assertEqual(await stores.authenticators.read_annotations(WEBSERVICE, (), 10), {})

    @scenario
    async def test_edition_changes(self) -> None:
        """The etag changes when one of the variables is declared, set, set again, removed, and made again."""
        stores = await self.stores_with_account()
        issuer = resource(f"variable:{BRANCH}/issuer")
        editions = [await self._edition(stores)]
        await load(stores, variables("jwks-uri"))
        editions.append(await self._edition(stores))
        await load(stores, variables("issuer"))
        editions.append(await self._edition(stores))
        for value in (b"one", b"two", b"one"):
            await stores.secrets.write_value(ADMIN, issuer, always(value))
            editions.append(await self._edition(stores))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/jwks-uri"), always(b"one"))
        editions.append(await self._edition(stores))
        await change(stores, Changes(delete=Rows((ResourceRow(str(issuer), str(ADMIN)),))))
        editions.append(await self._edition(stores))
        await load(stores, variables("issuer"))
        editions.append(await self._edition(stores))
        await stores.secrets.write_value(ADMIN, issuer, always(b"one"))
        editions.append(await self._edition(stores))
        self.assertEqual(len(set(editions)), len(editions), editions)

    @scenario
    async def test_edition_stays(self) -> None:
        """The etag stays when other variables change, and when the asked ones are only read."""
        stores = await self.stores_with_account()
        await load(stores, variables("issuer"))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/issuer"), always(b"one"))
        etag = await self._edition(stores)
        await load(stores, variables("other"))
        await load(stores, variables("issuer", branch="svc/authn-jwt/ci2"))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/other"), always(b"x"))
        await stores.secrets.write_value(ADMIN, resource("variable:svc/authn-jwt/ci2/issuer"), always(b"x"))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/issuer"), lambda reading: None)
        self.assertEqual(await self._edition(stores), etag)

    @scenario
    async def test_admitted(self) -> None:
        """A host whose group is in the authenticator's group may authenticate, and comes with its annotations there."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        self.assertEqual(await self._applicant(stores, HOST), ADMITTED)

    @scenario
    async def test_owner_may(self) -> None:
        """Anyone who owns the webservice may authenticate, by itself or through a role that it holds (AUTH-12)."""
        stores = await self.stores_with_account()
        await load(stores, authenticator().define("host:in").grant(f"policy:{BRANCH}", "host:in"))
        expected = attrs.evolve(ADMITTED, annotations={})
        for asking in (role(f"policy:{BRANCH}"), ADMIN, role("host:in")):
            self.assertEqual(await self._applicant(stores, asking), expected)

    @scenario
    async def test_outside(self) -> None:
        """A host outside the group may not authenticate, nor one whose group has other privileges."""
        stores = await self.stores_with_account()
        draft = authenticator().define("host:reader").permit(f"webservice:{BRANCH}", "host:reader", "read", "Authenticate")
        draft.define("webservice:svc/authn-jwt/ci2").permit("webservice:svc/authn-jwt/ci2", "host:reader", "authenticate")
        await load(stores, draft)
        expected = attrs.evolve(ADMITTED, may_authenticate=False, annotations={})
        for asking in ("host:apps/outside", "host:reader"):
            self.assertEqual(await self._applicant(stores, role(asking)), expected)

    @scenario
    async def test_unknown_role(self) -> None:
        """An unknown role may nothing; the rest is said all the same."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        self.assertEqual(
            await self._applicant(stores, role("host:apps/nobody")),
            attrs.evolve(ADMITTED, role_exists=False, may_authenticate=False, annotations={}),
        )

    @scenario
    async def test_unknown_webservice(self) -> None:
        """Nobody may authenticate to a webservice that does not exist, and a policy of its name is none."""
        stores = await self.stores_with_account()
        await load(stores, authenticator().define("policy:svc/authn-jwt/cd"))
        for branch in ("svc/authn-jwt/cd", "svc/authn-jwt/none", "svc/authn-jwt"):
            candidate = await self._applicant(stores, HOST, branch)
            self.assertFalse(candidate.webservice_exists)
            self.assertFalse(candidate.may_authenticate)
            self.assertTrue(candidate.role_exists)

    @scenario
    async def test_unknown_account(self) -> None:
        """Nothing of an unknown account exists, and nobody is known in another account by the same name."""
        stores = await self.stores_with_account("other")
        await load(stores, authenticator())
        nothing = CandidateFacts("", False, False, False, False, {}, None)
        self.assertEqual(await self._applicant(stores, role("host:apps/web", "nobody")), nothing)
        self.assertEqual(
            await self._applicant(stores, role("host:apps/web", "other")),
            attrs.evolve(nothing, account_exists=True, signing_key="other-1"),
        )

    @scenario
    async def test_annotations(self) -> None:
        """Annotations count when their names lie under the branch without its first segment, not when they begin like it."""
        stores = await self.stores_with_account()
        under = {
            "authn-jwt/ci/a": "1",
            "authn-jwt/ci/": "2",
            "authn-jwt/ci/deep/er/%_\\": "3",
            "authn-jwt/ci/ünï/☃": "",
            "authn-jwt/ci/\U0010ffff": "4",
            "authn-jwt/ci//x": "5",
        }
        beside = dict.fromkeys(
            [
                "authn-jwt/ci2/a",
                "authn-jwt/ci",
                "authn-jwt/ci0",
                "authn-jwt/ci-2/a",
                "authn-jwt/ci.x",
                "authn-jwt/c_/a",
                "AUTHN-JWT/CI/a",
                "svc/authn-jwt/ci/a",
                "authn-jwt/a",
                "authn-jwt//ci/a",
                "a",
            ],
            "no",
        )
        await load(stores, authenticator().define("host:h").annotate("host:h", under | beside))
        candidate = await self._applicant(stores, role("host:h"))
        self.assertEqual(candidate.annotations, under)
        candidate = await self._applicant(stores, role("host:h"), "svc/authn-jwt/ci2")
        self.assertEqual(candidate.annotations, {"authn-jwt/ci2/a": "no"})
        candidate = await self._applicant(stores, role("host:h"), "svc/authn-jwt/c_")
        self.assertEqual(candidate.annotations, {"authn-jwt/c_/a": "no"})

    @scenario
    async def test_general_annotations(self) -> None:
        """Annotations may be asked for by a shorter branch, of which the authenticator's own is a part."""
        stores = await self.stores_with_account()
        under = {"authn-jwt/": "0", "authn-jwt/a": "1", "authn-jwt/ci": "2", "authn-jwt/ci/a": "3", "authn-jwt/x/y/z": "4"}
        beside = dict.fromkeys(["authn-jwt", "authn-jwt2/a", "authn-jwt0", "authn-jwt.x", "authn/jwt/a", "a"], "no")
        await load(stores, authenticator().define("host:h").annotate("host:h", under | beside))
        candidate = await stores.authenticators.read_candidate(role("host:h"), BRANCH, NAMES, "authn-jwt")
        self.assertEqual(candidate.annotations, under)
        self.assertTrue(candidate.webservice_exists)

    @scenario
    async def test_too_many_annotations(self) -> None:
        """Annotations that are too many, or too long together, are not told at all; those of other branches don't count
        (AUTH-13).
        """
        stores = await self.stores_with_account()
        few = {f"authn-jwt/ci/{number:03}": "x" for number in range(ANNOTATIONS_LIMIT)}
        long = {f"authn-jwt/ci/{letter}": letter * (ANNOTATIONS_BYTES // 4) for letter in "abcd"}
        draft = authenticator().define("host:few", "host:many", "host:long", "host:longer")
        draft.annotate("host:few", few | {"authn-jwt/cj/a": "x", "other": "x"})
        draft.annotate("host:many", few | {"authn-jwt/ci/one-more": "x"})
        draft.annotate("host:long", long | {"other": "x" * 1000})
        draft.annotate("host:longer", long | {"authn-jwt/ci/e": "e"})
        await load(stores, draft)
        found = {name: (await self._applicant(stores, role(f"host:{name}"))).annotations for name in ("few", "long")}
        self.assertEqual(found, {"few": few, "long": long})
        for name in ("many", "longer"):
            candidate = await self._applicant(stores, role(f"host:{name}"))
            self.assertIsNone(candidate.annotations)
            self.assertTrue(candidate.role_exists)

    @scenario
    async def test_odd_branches(self) -> None:
        """A service id is only text, whatever it is made of."""
        stores = await self.stores_with_account()
        for number, identifier in enumerate(ODD_IDENTIFIERS):
            branch = f"svc/authn-jwt/{identifier[:900]}"
            draft = Draft().define(f"webservice:{branch}", f"variable:{branch}/issuer", f"host:{number}")
            draft.permit(f"webservice:{branch}", f"host:{number}", "authenticate")
            draft.annotate(f"host:{number}", {f"authn-jwt/{identifier[:900]}/a": "yes", "authn-jwt/x/a": "no"})
            await load(stores, draft)
            await stores.secrets.write_value(ADMIN, resource(f"variable:{branch}/issuer"), always(b"%d" % number))
        for number, identifier in enumerate(ODD_IDENTIFIERS):
            branch = f"svc/authn-jwt/{identifier[:900]}"
            settings = await stores.authenticators.read_settings(ACCOUNT, branch, NAMES)
            self.assertEqual(settings.values, {"issuer": b"%d" % number})
            under = branch.partition("/")[2]
            candidate = await stores.authenticators.read_candidate(role(f"host:{number}"), branch, NAMES, under)
            self.assertEqual(
                candidate,
                CandidateFacts(settings.etag, True, True, True, True, {f"authn-jwt/{identifier[:900]}/a": "yes"}, "acct-1"),
            )
            another = role(f"host:{number - 1 if number else 1}")
            other = await stores.authenticators.read_candidate(another, branch, NAMES, under)
            self.assertFalse(other.may_authenticate)

    @scenario
    async def test_newest_signing_key(self) -> None:
        """The signing key is the account's newest."""
        stores = await self.stores_with_account("other")
        await load(stores, authenticator(), ROOT)
        await stores.accounts.rotate_signing_key(
            attrs.evolve((await stores.accounts.list_signing_keys(ACCOUNT))[0], key_id="0", created_at=0.5), 1.0
        )
        self.assertEqual((await self._applicant(stores, HOST)).signing_key, "0")

    @scenario
    async def test_sealed(self) -> None:
        """Values come as they were sealed."""
        stores = await self.stores_with_account()
        await load(stores, variables("issuer"))
        every = Sealed(bytes(range(256)))
        await stores.secrets.write_value(ADMIN, resource(f"variable:{BRANCH}/issuer"), lambda reading: every)
        settings = await stores.authenticators.read_settings(ACCOUNT, BRANCH, NAMES)
        self.assertEqual(settings.values, {"issuer": every})

    @scenario
    async def test_annotations_in_order(self) -> None:
        """Annotations come in the order of their names, by code points."""
        stores = await self.stores_with_account()
        names = ["authn-jwt/ci/b", "authn-jwt/ci/B", "authn-jwt/ci/é", "authn-jwt/ci/_", "authn-jwt/ci/a"]
        await load(stores, authenticator().define("host:h").annotate("host:h", dict.fromkeys(names, "x")))
        self.assertEqual(list((await self._applicant(stores, role("host:h"))).annotations or ()), sorted(names))

    @scenario
    async def test_restrictions(self) -> None:
        """A role comes with the networks from which it may log in, and with no other role's."""
        stores = await self.stores_with_account()
        networks = ("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32")
        draft = authenticator().define("host:h", "host:h2").restrict("host:h", *networks).restrict("host:h2", "0.0.0.0/0")
        await load(stores, draft)
        found = (await self._applicant(stores, role("host:h"))).restrictions
        self.assertEqual(set(found), set(map(ip_network, networks)))
        self.assertEqual((await self._applicant(stores, HOST)).restrictions, ())

    async def _settings(self, stores: Stores, branch: str = BRANCH) -> tuple[bool | None, set[str], int]:
        """What the webservice was told, besides values."""
        settings = await stores.authenticators.read_settings(ACCOUNT, branch, NAMES)
        return settings.switched, set(settings.distrusted), settings.refreshes

    @scenario
    async def test_nothing_was_told(self) -> None:
        """An authenticator to which nobody said anything is neither on nor off, distrusts no key, and has no wish."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        for branch in (BRANCH, "svc/authn-jwt/none"):
            self.assertEqual(await self._settings(stores, branch), (None, set(), 0))
            self.assertEqual(await stores.authenticators.list_distrusted_keys(resource(f"webservice:{branch}")), ())

    @scenario
    async def test_switch(self) -> None:
        """A switch is what it was set to last, in its own account alone; each change is another etag (AUTH-3)."""
        stores = await self.stores_with_account("other")
        await load(stores, authenticator())
        await load(stores, authenticator("other"), root_policy("other"))
        editions = [await self._edition(stores)]
        for on in (True, False):
            await stores.authenticators.switch_authenticator(WEBSERVICE, on)
            await stores.authenticators.switch_authenticator(WEBSERVICE, on)
            self.assertEqual(await self._settings(stores), (on, set(), 0))
            editions.append(await self._edition(stores))
        self.assertEqual(len(set(editions)), 3, editions)
        self.assertIsNone((await stores.authenticators.read_settings("other", BRANCH, NAMES)).switched)

    @scenario
    async def test_refreshes(self) -> None:
        """A wish for newer keys has a larger number than all before it, whatever authenticator they were for."""
        stores = await self.stores_with_account()
        await load(stores, authenticator().define("webservice:svc/authn-jwt/cd"))
        other = resource("webservice:svc/authn-jwt/cd")
        etag = await self._edition(stores)
        numbers = [
            await stores.authenticators.request_key_refresh(each) for each in (WEBSERVICE, WEBSERVICE, other, WEBSERVICE)
        ]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(numbers[0], 0)
        self.assertEqual((await self._settings(stores))[2], numbers[3])
        self.assertEqual((await self._settings(stores, "svc/authn-jwt/cd"))[2], numbers[2])
        self.assertNotEqual(await self._edition(stores), etag)

    @scenario
    async def test_distrust(self) -> None:
        """A key is distrusted until that is taken back, by the one who said so first; each change is another etag."""
        stores = await self.stores_with_account("other")
        await load(stores, authenticator())
        await load(stores, authenticator("other"), root_policy("other"))
        editions = [await self._edition(stores)]
        for key, by in (("k1", ADMIN), ("k2", HOST), ("k1", HOST)):
            await stores.authenticators.distrust_key(WEBSERVICE, key, by)
            editions.append(await self._edition(stores))
        first, second = await stores.authenticators.list_distrusted_keys(WEBSERVICE)
        self.assertEqual((first.key, first.by, second.key, second.by), ("k1", str(ADMIN), "k2", str(HOST)))
        self.assertGreater(first.since, 1_000_000_000)
        self.assertEqual(await self._settings(stores), (None, {"k1", "k2"}, 0))
        self.assertEqual(await stores.authenticators.list_distrusted_keys(resource(f"webservice:{BRANCH}", "other")), ())
        self.assertTrue(await stores.authenticators.trust_key(WEBSERVICE, "k2"))
        editions.append(await self._edition(stores))
        self.assertFalse(await stores.authenticators.trust_key(WEBSERVICE, "k2"))
        self.assertEqual(await self._settings(stores), (None, {"k1"}, 0))
        # The third said nothing new, and the last goes back to what there was.
        self.assertEqual([editions.index(each) for each in editions], [0, 1, 2, 2, 1])

    @scenario
    async def test_odd_keys(self) -> None:
        """The name of a key is only text, and two sets of names never have the same etag."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        editions = set()
        odd = [*ODD_IDENTIFIERS, "a,b", "a", "b", '"a"', "{", "}", "(", ")", ""]
        for key in odd:
            await stores.authenticators.distrust_key(WEBSERVICE, key, ADMIN)
            self.assertEqual(await self._settings(stores), (None, {key}, 0))
            editions.add(await self._edition(stores))
            self.assertTrue(await stores.authenticators.trust_key(WEBSERVICE, key))
        for key in ("a", "b"):
            await stores.authenticators.distrust_key(WEBSERVICE, key, ADMIN)
        editions.add(await self._edition(stores))
        self.assertEqual(len(editions), len(set(odd)) + 1)

    @scenario
    async def test_no_webservice(self) -> None:
        """What isn't there can't be told anything, nor can a policy of the name."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        for missing in (MISSING, resource(f"webservice:{BRANCH}", "nobody")):
            for telling in (
                stores.authenticators.switch_authenticator(missing, True),
                stores.authenticators.request_key_refresh(missing),
                stores.authenticators.distrust_key(missing, "k", ADMIN),
                stores.authenticators.trust_key(missing, "k"),
            ):
                with self.assertRaises(RecordNotFound):
                    await telling
            self.assertEqual(await stores.authenticators.list_distrusted_keys(missing), ())

    @scenario
    async def test_too_many_distrusted(self) -> None:
        """Every login reads what is distrusted, so there is an end to that; what is distrusted already may be said again
        (AUTH-64).
        """
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        for number in range(DISTRUSTED_LIMIT):
            await stores.authenticators.distrust_key(WEBSERVICE, f"k{number}", ADMIN)
        with self.assertRaises(InvalidParameter):
            await stores.authenticators.distrust_key(WEBSERVICE, "another", ADMIN)
        await stores.authenticators.distrust_key(WEBSERVICE, "k7", ADMIN)
        self.assertEqual(len(await stores.authenticators.list_distrusted_keys(WEBSERVICE)), DISTRUSTED_LIMIT)

    @scenario
    async def test_all_is_forgotten(self) -> None:
        """A webservice that is deleted and made again was told nothing (AUTH-3)."""
        stores = await self.stores_with_account()
        await load(stores, authenticator())
        number = await stores.authenticators.request_key_refresh(WEBSERVICE)
        await stores.authenticators.switch_authenticator(WEBSERVICE, False)
        await stores.authenticators.distrust_key(WEBSERVICE, "k", ADMIN)
        row = ResourceRow(str(WEBSERVICE), f"{ACCOUNT}:policy:{BRANCH}")
        await change(stores, Changes(delete=Rows((row,))))
        await load(stores, Draft().define(f"webservice:{BRANCH}"))
        self.assertEqual(await self._settings(stores), (None, set(), 0))
        self.assertGreater(await stores.authenticators.request_key_refresh(WEBSERVICE), number)

    @scenario
    async def test_webservices(self) -> None:
        """All webservices under a prefix are listed, in order, those of every account, each with its switch."""
        stores = await self.stores_with_account("acct-2", "b")
        self.assertEqual(await stores.authenticators.list_webservices("svc"), [])
        await load(
            stores, authenticator().define("webservice:svc/authn-jwt/ci/status", "webservice:svc0", "webservice:other")
        )
        for account in ("acct-2", "b"):
            draft = authenticator(account).define("variable:svc/x", "webservice:SVC/x", "webservice:svc-2/x")
            await load(stores, draft, root_policy(account))
        await stores.authenticators.switch_authenticator(resource(f"webservice:{BRANCH}", "b"), False)
        await stores.authenticators.switch_authenticator(resource(f"webservice:{BRANCH}/status"), True)
        self.assertEqual(
            await stores.authenticators.list_webservices("svc"),
            [
                (ResourceName("acct-2", "webservice", BRANCH), None),
                (WEBSERVICE, None),
                (ResourceName(ACCOUNT, "webservice", f"{BRANCH}/status"), True),
                (ResourceName("b", "webservice", BRANCH), False),
            ],
        )
        self.assertEqual(await stores.authenticators.list_webservices("conjur"), [])
        told = await stores.authenticators.list_webservices("svc")
        listed = {account: [each for each in told if each[0].account == account] for account in ("acct", "acct-2", "b")}
        # Those of statuses would take the places of authenticators.
        some = {name: [each for each in all_ if not each[0].identifier.endswith("/status")] for name, all_ in listed.items()}
        found = await stores.authenticators.list_webservices_by_account("svc", "", 9)
        self.assertEqual((found, list(found)), (some, sorted(some)))
        self.assertEqual(
            await stores.authenticators.list_webservices_by_account("svc", "acct", 1), {"acct-2": some["acct-2"]}
        )
        self.assertEqual(await stores.authenticators.list_webservices_by_account("conjur", "b", 9), {})
        self.assertEqual(await stores.authenticators.list_webservices_by_account("conjur", "acct-2", 9), {"b": []})
        for account in ("acct", "acct-2"):
            self.assertEqual(await stores.authenticators.list_account_webservices(account, "svc", 9), listed[account])
        self.assertEqual(await stores.authenticators.list_account_webservices("acct", "svc", 1), listed["acct"][:1])
        for account, prefix in (("b", "conjur"), ("acct", "sv"), ("nobody", "svc"), ("", "svc")):
            self.assertEqual(await stores.authenticators.list_account_webservices(account, prefix, 9), [])
        numbers = range(WEBSERVICES_PER_ACCOUNT + 1)
        names = (name for n in numbers for name in (f"webservice:many/{n:02}", f"webservice:many/{n:02}/status"))
        many = Draft(ACCOUNT).define(*names)
        await load(stores, many)
        found = await stores.authenticators.list_webservices_by_account("many", "", 1)
        self.assertEqual(
            [name.identifier for name, _ in found[ACCOUNT]], [f"many/{n:02}" for n in range(WEBSERVICES_PER_ACCOUNT)]
        )
