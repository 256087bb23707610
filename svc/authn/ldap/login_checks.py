"""The checks of a login by LDAP, in the order in which failures count, and the facts that they are made on.

Note [Undecided logins]. When the directory couldn't be reached (``reasons.POSTPONING_REASONS``), that counts before all
else, so that logins as known and as unknown roles are both answered to try again (AUTH-57). A failure that the directory
reports about a single entry is unproven. So are failures before it is asked: an impossible login, an authenticator that
isn't enabled or defined, invalid settings.

Note [Who may]. Entries of a directory are people, so hosts don't log in here. Neither does ``admin``, whom a directory's
administrators would otherwise be (AUTH-53). Directories ignore blanks at both ends of a login (RFC 4518 2.6.1): the user
``"alice "`` would be the person of the entry ``alice``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.authn.apikey import API_KEY_OFF
from svc.authn.fact_checks import FactCheck, Objection
from svc.authn.ldap.mapped_roles import MappedOutcome
from svc.model.authentication import AuthenticatorSettings, LoginCandidate
from svc.model.credentials import Credential
from svc.model.names import ResourceName, RoleName, admin_of
from svc.model.query_results import is_within
from svc.model.reasons import Reason
from svc.model.text import quote_text

#: The longest password, in bytes.
PASSWORD_LIMIT: Final = 1024


@attrs.frozen(kw_only=True)
class LdapLogin:
    """The login that a request is for: as ``role`` at ``webservice``, whose name in the configuration is ``service``.

    ``usable``: it may be, as far as the configuration goes; ``disabled`` says why it is not, once its ``settings`` are read.
    """

    role: RoleName
    webservice: ResourceName
    service: str
    evidence: bytes = attrs.field(repr=False)
    listed: bool
    usable: bool
    disabled: str | None = None
    settings: AuthenticatorSettings | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class LdapFacts(LdapLogin):
    """The findings about a request that may involve the directory; ``unproven`` says why it proves nobody.

    ``not_queried`` says why the directory wasn't asked, where it wasn't; ``retry_after`` after how many seconds it is, where
    that is known; ``late``: a refusal is late, since it isn't asked any more about this login (LOCK-7). ``mapped``: what
    mappings mean for it, where the directory proves somebody and there are mappings.
    """

    candidate: LoginCandidate
    credential: Credential
    api_key: bytes | None = attrs.field(repr=False)
    is_key: bool
    unproven: Objection | None
    address: str
    not_queried: str | None = None
    retry_after: float | None = None
    late: bool = False
    mapped: MappedOutcome | None = None


#: Most names and roles that the check of mappings lists, each.
_MAX_LISTED: Final = 20

#: Why the directory proves nobody, by the check that reports it.
_DIRECTORY: Final = frozenset({Reason.LDAP_UNAVAILABLE, Reason.LDAP_TLS_FAILED, Reason.LDAP_ANSWER_MALFORMED})
_BIND: Final = frozenset({Reason.LDAP_BIND_REFUSED})
_SEARCH: Final = frozenset({Reason.LDAP_SEARCH_REFUSED})
_MAPPINGS: Final = frozenset({Reason.LDAP_GROUPS_UNKNOWN, Reason.LDAP_ROLES_UNWRITTEN})
_ENTRY: Final = frozenset(
    {Reason.LDAP_ENTRY_UNKNOWN, Reason.LDAP_ENTRY_AMBIGUOUS, Reason.LDAP_ENTRY_REFUSED, Reason.LDAP_ENTRY_GONE}
)
_CONFIGURATION: Final = frozenset({Reason.CONFIGURATION_INVALID})


def _directory_check(
    name: str, reasons: frozenset[Reason], passed: str | Callable[[LdapFacts], str], *, of_evidence: bool = False
) -> FactCheck[LdapFacts]:
    """Return the check of objections by the directory or its configuration; the directory isn't asked about an API key."""

    def find_objection(facts: LdapFacts) -> Objection | None:
        return facts.unproven if facts.unproven is not None and facts.unproven[0] in reasons else None

    def describe_result(facts: LdapFacts) -> str:
        if facts.not_queried is not None:
            return f"not asked: {facts.not_queried}"
        return passed if isinstance(passed, str) else passed(facts)

    return FactCheck(name, find_objection, describe_result, of_evidence)


def _describe_mappings(facts: LdapFacts) -> str:
    if facts.mapped is None:
        return "no name is mapped" if facts.unproven is None else "not asked: nobody is proven"
    foreseen, made = facts.mapped.preview, facts.mapped.is_applied
    mapped = (
        ", ".join(f"the {name.kind} {quote_text(name.key)}" for name in foreseen.names[:_MAX_LISTED]) or "no name of its"
    )
    parts = [f"of {facts.mapped.groups} groups and the login, mapped are: {mapped}"]
    for roles, did, does in (
        (foreseen.difference.gains, "it became a member of", "a login makes it a member of"),
        (foreseen.difference.loses, "it is no member any more of", "a login takes from it"),
    ):
        if roles:
            parts.append(f"{did if made else does} {', '.join(map(quote_text, roles[:_MAX_LISTED]))}")
    return "; ".join(parts)


def _role_problem(asked: LdapLogin) -> Objection | None:
    """Return why a role is refused before the directory is asked (Note [Who may]); ``None`` when it isn't."""
    if asked.role.kind != "user" or asked.role == admin_of(asked.role.account):
        return Reason.LDAP_ROLE_REFUSED, "neither hosts nor admin log in by a directory"
    if asked.role.identifier != asked.role.identifier.strip():
        return Reason.LDAP_ROLE_REFUSED, "a login that begins or ends with a blank is another's to the directory"
    return None


def _evidence_problem(asked: LdapLogin) -> Objection | None:
    if not asked.evidence:
        return Reason.CREDENTIALS_MISSING, "there is no password"
    if len(asked.evidence) > PASSWORD_LIMIT or b"\0" in asked.evidence:
        return Reason.REQUEST_MALFORMED, f"a password has at most {PASSWORD_LIMIT} bytes, and none of them is NUL"
    return None


def _origin_problem(facts: LdapFacts) -> Objection | None:
    networks = facts.candidate.restrictions
    if not networks or is_within(facts.address, networks):
        return None
    return Reason.ORIGIN_REFUSED, f"the request comes from {quote_text(facts.address)}, where the role may not log in from"


#: The checks in the order in which failures count: those before the directory is asked, and those after.
BEFORE_DIRECTORY: Final = (
    FactCheck[LdapLogin](
        "listed",
        lambda a: (
            None
            if a.usable
            else (Reason.AUTHENTICATOR_NOT_ENABLED, f"{quote_text(a.service)} is not listed in the configuration")
        ),
        lambda a: (
            f"{quote_text(a.service)} is {'listed in the configuration' if a.listed else 'one that can be switched on'}"
        ),
    ),
    FactCheck[LdapLogin]("user", _role_problem, lambda _: "a user may log in by a directory"),
    FactCheck[LdapLogin]("evidence", _evidence_problem, lambda _: "there is a password or an API key", of_evidence=True),
    FactCheck[LdapLogin](
        "enabled",
        lambda a: None if a.disabled is None else (Reason.AUTHENTICATOR_NOT_ENABLED, a.disabled),
        lambda a: f"{quote_text(a.service)} may be used",
    ),
)
_AFTER: Final = (
    # Note [Undecided logins]
    _directory_check("directory", _DIRECTORY, "the directory answers"),
    _directory_check("bind", _BIND, "the directory takes the account that searches"),
    _directory_check("search", _SEARCH, "the directory has the account search", of_evidence=True),
    _directory_check("mappings", _MAPPINGS, _describe_mappings, of_evidence=True),
    FactCheck[LdapFacts](
        "account",
        lambda f: (
            None
            if f.candidate.account_exists
            else (Reason.ACCOUNT_UNKNOWN, f"there is no account {quote_text(f.role.account)}")
        ),
        lambda f: f"the account {quote_text(f.role.account)} exists",
    ),
    FactCheck[LdapFacts](
        "webservice",
        lambda f: (
            None
            if f.candidate.webservice_exists
            else (Reason.WEBSERVICE_UNKNOWN, "no policy defines the authenticator's webservice")
        ),
        lambda f: f"a policy defines the webservice {quote_text(f.webservice.identifier)}",
    ),
    FactCheck[LdapFacts](
        "role",
        lambda f: None if f.candidate.role_exists else (Reason.ROLE_UNKNOWN, f"there is no role {quote_text(str(f.role))}"),
        lambda f: f"there is the role {quote_text(str(f.role))}",
    ),
    FactCheck[LdapFacts](
        "privilege",
        lambda f: (
            None
            if f.candidate.may_authenticate
            else (
                Reason.PRIVILEGE_MISSING,
                f"{quote_text(str(f.role))} has no privilege authenticate on the authenticator",
            )
        ),
        lambda f: f"it has the privilege authenticate on {quote_text(f.service)}",
    ),
)
_ORIGIN: Final = FactCheck[LdapFacts](
    "origin",
    _origin_problem,
    lambda f: (
        f"{quote_text(f.address)} is in a network that the role is restricted to"
        if f.candidate.restrictions
        else "the role is not restricted to networks"
    ),
)
_PROOF: Final = (
    _directory_check("configuration", _CONFIGURATION, "the settings of the directory can be used"),
    _directory_check("entry", _ENTRY, "the directory has one entry for the login", of_evidence=True),
    FactCheck[LdapFacts](
        "credentials",
        lambda f: f.unproven,
        lambda f: "the evidence is the role's API key" if f.is_key else "the directory takes the password",
        of_evidence=True,
    ),
)
_SIGNING_KEY: Final = FactCheck[LdapFacts](
    "signing-key",
    lambda f: (Reason.SIGNING_KEY_UNUSABLE, "the account has no signing key") if f.candidate.signing_key is None else None,
    lambda _: "the account has a key to sign access tokens with",
)
AUTHENTICATE: Final = (*_AFTER, _ORIGIN, *_PROOF, _SIGNING_KEY)
#: To read one's API key, from any address.
LOGIN: Final = (
    *_AFTER,
    *_PROOF,
    FactCheck[LdapFacts](
        "annotation",
        lambda f: (Reason.API_KEY_OFF, API_KEY_OFF) if f.credential.api_key_off else None,
        lambda _: "no annotation says that the role has no API key",
    ),
    FactCheck[LdapFacts](
        "api-key",
        lambda f: (Reason.CREDENTIALS_MISSING, "the role has no API key") if f.api_key is None else None,
        lambda _: "the role has an API key",
    ),
)
