"""The LDAP authenticator: it admits a user whose name and password a directory accepts.

A role's own API key proves it too, without the directory: so clients that were given their key go on working. A key that was
replaced is still a secret of this service, and a failure in the directory: what is written as a key, or as an access token,
isn't sent there (LOCK-9).

Note [Same work]. The directory is asked about every request whose evidence isn't written as one of these, whether or not the
role exists and may log in. So an unknown role, a missing privilege and a wrong password take the same time (FAIL-18); only
an authenticator that can't be used is refused before. Failures count in the order of TOK-6. Whether names are mapped is
looked up for every request, too, and the directory is asked for the groups of everybody whom it proves. The write that may
follow could only be timed by somebody who knows a good password; so could the note that a user is missing no more (LDAP-24).

Note [Epoch first]. Tokens may be revoked once the directory has no entry for somebody any more. So the epoch that a token
gets is read before the directory is asked (``svc/storage/sql/access_facts.py``, Note [Epochs]).

Note [Undecided logins]. When the directory couldn't be reached (``reasons.POSTPONING_REASONS``), that counts before all
else, so that logins as known and as unknown roles are both answered to try again (AUTH-57). A failure that the directory
reports about a single entry is unproven. So are failures before it is asked: an impossible login, an authenticator that
isn't enabled or defined, invalid settings.

Note [Who may]. Entries of a directory are people, so hosts don't log in here. Neither does ``admin``, whom a directory's
administrators would otherwise be (AUTH-53). Directories ignore blanks at both ends of a login (RFC 4518 2.6.1): the user
``"alice "`` would be the person of the entry ``alice``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs

from svc.authn.apikey import API_KEY_OFF, missing_entry_detail
from svc.authn.evaluation import FactCheck, Objection, explain_steps, first_objection
from svc.authn.ldap.directory_rounds import MissingEntries
from svc.authn.ldap.directory_settings import NAME, VARIABLES, LdapMisconfiguration, LdapServers
from svc.authn.ldap.mapped_roles import MappedOutcome, MappedRoles, ProvenPerson
from svc.authn.settings import why_disabled
from svc.crypto.tokens import has_token_form
from svc.crypto.vault import Decoy, Vault, api_key_name
from svc.model.authentication import (
    Admitted,
    AuthenticatorSettings,
    CandidateFacts,
    ExplainedRefusal,
    Explanation,
    ExplanationRequest,
    ExplanationStep,
    LoginRequest,
    Problem,
    Refused,
    spread_retry_after,
)
from svc.model.clocks import WallClock
from svc.model.credentials import Credential, has_key_form, is_same_key, new_api_key
from svc.model.dialect import Dialect
from svc.model.errors import InvalidName, WrongDataKey
from svc.model.ldap_directories import GROUP, DirectoryRefused, DirectoryStatus, GroupSource, IDirectories, LdapServer
from svc.model.names import ResourceName, RoleName, admin_of
from svc.model.query_results import is_within
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind
from svc.model.text import quote_text
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore

#: Why a directory isn't queried, or not to the end, by the reason of the refusal.
_NOT_QUERIED: Final = {
    Reason.CONFIGURATION_INVALID: "its configuration is faulty",
    Reason.LDAP_FAILURES_TOO_MANY: "too many logins failed",
}

#: The seconds over which retries of clients are spread, when the time of the next try is known.
_SPREAD: Final = 60.0


@attrs.define(eq=False, repr=False)
class LdapAuthenticator:
    """Admits users by a directory's password or their own API key, to the webservices ``<prefix>/authn-ldap/<service id>``.

    ``directories`` returns the client of directories; it is called when one is needed. ``enabled`` has the names
    ``authn-ldap/<service id>`` that the configuration lists.
    """

    _reader: AuthenticatorStore
    _credentials: CredentialStore
    _servers: LdapServers
    _directories: Callable[[], IDirectories]
    _vault: Vault
    _dialect: Dialect
    _enabled: Collection[str]
    _wall: WallClock
    _mapped_roles: MappedRoles
    _missing_entries: MissingEntries
    #: Called with the role that gets its API key.
    _note_directory: Callable[[Admitted], object]
    _decoy: Decoy = attrs.field(init=False)

    @_decoy.default
    def _sealed_decoy(self) -> Decoy:
        return Decoy(self._vault, new_api_key().encode("ascii"))

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide on one request.

        :raises StoreUnavailable: the store can't be reached.
        """
        facts = await self._decide_login(request, AUTHENTICATE)
        if isinstance(facts, Refused):
            return facts
        assert facts.candidate.signing_key is not None
        return _make_admitted(facts)

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Return the role's API key, from any address: authentication with the key checks that (TOK-3).

        :raises StoreUnavailable: the store can't be reached.
        """
        facts = await self._decide_login(request, LOGIN)
        if isinstance(facts, Refused):
            return facts
        assert facts.api_key is not None
        self._note_directory(_make_admitted(facts))
        return facts.api_key

    async def explain(self, request: ExplanationRequest) -> Explanation | Refused:
        """Decide as ``authenticate``, and explain it; without evidence the directory is only reached (REF-13).

        :raises StoreUnavailable: the store can't be reached.
        """
        asked, tried = await self._prepare_login(request, tried=request.tried), request.tried
        if isinstance(asked, Refused):
            return asked
        role, steps = str(asked.role), explain_steps(BEFORE_DIRECTORY, asked, tried=tried)
        objection = first_objection(BEFORE_DIRECTORY, asked, tried=tried)
        if objection is not None:
            skipped = tuple(ExplanationStep(check.name, "not reached") for check in AUTHENTICATE)
            return ExplainedRefusal(*objection, role, steps=(*steps, *skipped))
        facts = await self._gather_facts(asked, request, request.address, tried=tried, changes=False)
        steps, objection = (
            (*steps, *explain_steps(AUTHENTICATE, facts, tried=tried)),
            first_objection(AUTHENTICATE, facts, tried=tried),
        )
        if objection is None:
            return Explanation(steps, role, True if tried else None)
        refused = self._make_refusal(facts, objection)
        known, late = refused.known, refused.late
        return ExplainedRefusal(*objection, role, refused.kind, refused.retry_after, known=known, late=late, steps=steps)

    async def read_directory_status(self, webservice: ResourceName, service: str) -> DirectoryStatus:
        """Return the state of the authenticator of this name; its directory is bound to once, unless that was refused."""
        settings, listed = await self._servers.read_settings(webservice), service in self._enabled
        disabled = why_disabled(self._dialect, service, listed, settings.switched)
        problems = () if disabled is None else (disabled,)
        server = await self._servers.build_server(webservice, settings)
        if isinstance(server, LdapMisconfiguration):
            return DirectoryStatus((*problems, *server.problems), listed)
        if disabled is not None:
            return DirectoryStatus(problems, listed, server.bind_dn)
        try:
            bases = await self._directories().read_bases(server)
        except DirectoryRefused as refusal:
            problem = Problem(f"{refusal.detail.rstrip('.')}.", f"`svc explain-reason {refusal.reason}` says what to do.")
            outcome = "refused" if refusal.reason is Reason.LDAP_BIND_REFUSED else "failed"
            return DirectoryStatus((problem,), listed, server.bind_dn, outcome, refusal.retry_after)
        unreadable = tuple(
            Problem(
                f"Nothing is found below {base.dn!r}: {base.fault}.",
                f"Correct the annotation {base.annotation}, or let the account that searches read the entry.",
            )
            for base in bases
            if base.fault is not None
        )
        if (missing := await self._missing_entries.problem(webservice)) is not None:
            unreadable += (missing,)
        return DirectoryStatus(unreadable, listed, server.bind_dn, "ok", None, tuple(bases))

    async def _decide_login(self, request: LoginRequest, checks: Sequence[FactCheck[LdapFacts]]) -> LdapFacts | Refused:
        """Return the findings, or the failure that counts."""
        asked = await self._prepare_login(request)
        if isinstance(asked, Refused):
            return asked
        objection = first_objection(BEFORE_DIRECTORY, asked)
        if objection is not None:
            return Refused(*objection, str(asked.role))
        facts = await self._gather_facts(asked, request, request.client_ip)
        objection = first_objection(checks, facts)
        return facts if objection is None else self._make_refusal(facts, objection)

    def _make_refusal(self, facts: LdapFacts, objection: Objection) -> Refused:
        unprivileged = objection[0] is Reason.PRIVILEGE_MISSING and facts.unproven is None
        tells = unprivileged and self._dialect.reveals_missing_privilege
        kind = RefusalKind.UNPRIVILEGED if tells else RefusalKind.UNPROVEN
        refused = Refused.for_reason(*objection, str(facts.role), kind, known=facts.candidate.role_exists)
        if refused.kind is RefusalKind.POSTPONED and facts.retry_after is not None:
            # Nothing changes before by itself.
            refused = attrs.evolve(refused, retry_after=spread_retry_after(facts.retry_after, most_spread=_SPREAD))
        return attrs.evolve(refused, late=facts.late)

    async def _prepare_login(self, request: LoginRequest, *, tried: bool = True) -> LdapLogin | Refused:
        """Return the facts of the request; the store is queried whether it is switched off only if nothing else is wrong."""
        service = f"{NAME}/{request.service_id}"
        try:
            role = RoleName.from_login(request.account, request.login or "")
            webservice = ResourceName.from_parts(role.account, "webservice", f"{self._dialect.prefix}/{service}")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        listed = service in self._enabled
        asked = LdapLogin(
            role=role,
            webservice=webservice,
            service=service,
            evidence=request.evidence,
            listed=listed,
            usable=listed or self._dialect.switch_enables,
        )
        if first_objection(BEFORE_DIRECTORY, asked, tried=tried) is not None:
            return asked
        settings = await self._servers.read_settings(webservice)
        disabled = why_disabled(self._dialect, service, listed, settings.switched)
        return attrs.evolve(asked, settings=settings, disabled=None if disabled is None else disabled.what)

    async def _gather_facts(
        self, asked: LdapLogin, request: LoginRequest, address: str, *, tried: bool = True, changes: bool = True
    ) -> LdapFacts:
        """Return the findings about a request (Note [Same work]), once mappings have their effect if it ``changes`` that."""
        role, webservice = asked.role, asked.webservice
        assert asked.settings is not None
        candidate = await self._reader.read_candidate(role, webservice.identifier, VARIABLES, NAME)
        credential = await self._credentials.read_credential(role)
        unreadable: Objection | None = None
        try:
            opened = None if credential.api_key is None else self._vault.open(api_key_name(role), credential.api_key)
        except WrongDataKey:
            opened, unreadable = None, (Reason.CREDENTIALS_UNREADABLE, "the stored API key doesn't open under the data key")
        matches = is_same_key(self._decoy.open() if opened is None else opened, asked.evidence)
        usable = not (credential.api_key_off or credential.is_expired(self._wall.seconds()))
        missing_from = credential.missing_from
        is_key = matches and opened is not None and usable and not missing_from
        mapped: MappedOutcome | None = None
        found: ProvenPerson | None = None
        unproven: Objection | None = None
        unasked, again, late = None, None, False
        if is_key:
            unasked = "the evidence is the role's API key"
        elif tried and has_key_form(asked.evidence):
            unasked = "the evidence is written as an API key, which is no directory's password"
            unproven = Reason.CREDENTIALS_WRONG, "the evidence is written as an API key, and isn't the role's present one"
            if matches and opened is not None and usable and missing_from:
                unproven = Reason.LDAP_ENTRY_GONE, missing_entry_detail(missing_from)
        elif tried and has_token_form(asked.evidence):
            unasked = "the evidence is written as an access token, which is no directory's password"
            unproven = Reason.CREDENTIALS_WRONG, "the evidence is written as an access token, and is no password"
        else:
            try:
                found = await self._query_directory(asked, request, tried=tried)
            except DirectoryRefused as refusal:
                unproven, again = (refusal.reason, refusal.detail), refusal.retry_after
                unasked, late = _NOT_QUERIED.get(refusal.reason), refusal.reason is Reason.LDAP_FAILURES_TOO_MANY
        if unreadable is not None and (unproven is None or unproven[0] not in POSTPONING_REASONS):
            unproven = unreadable
        if tried and changes and not is_key and unproven is None and missing_from is not None:
            await self._missing_entries.mark_found(request, role)
        if unproven is None and found is not None:
            if changes and candidate.role_exists:
                mapped = await self._mapped_roles.apply_mappings(request, webservice, role, found)
            else:
                mapped = await self._mapped_roles.preview_changes(webservice, role, found)
            unproven = mapped.write_failure
            # The candidate was read before the change.
            candidate = attrs.evolve(candidate, may_authenticate=mapped.preview.may_authenticate)
        return LdapFacts(
            **attrs.asdict(asked, recurse=False),
            candidate=candidate,
            credential=credential,
            api_key=opened,
            is_key=is_key,
            unproven=unproven,
            address=address,
            not_queried=unasked,
            retry_after=again,
            late=late,
            mapped=mapped,
        )

    async def _query_directory(self, asked: LdapLogin, request: LoginRequest, *, tried: bool) -> ProvenPerson | None:
        """Return the directory's facts on the person whom it proves, where names are mapped.

        :raises DirectoryRefused: it proves nobody, or where nothing is ``tried`` it can't be reached.
        """
        role, webservice, settings = asked.role, asked.webservice, asked.settings
        assert settings is not None
        server, kinds = (
            await self._servers.build_server(webservice, settings),
            await self._mapped_roles.mapped_kinds(webservice),
        )
        if isinstance(server, LdapMisconfiguration):
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, str(server))
        directories, operator = self._directories(), isinstance(request, ExplanationRequest)
        if not tried:
            await directories.check_connection(server, by_operator=operator)
            return None
        if GROUP in kinds:
            mapped = await self._mapped_groups(webservice, server)
            groups = await directories.read_groups(server, role.identifier, asked.evidence, mapped, by_operator=operator)
            return ProvenPerson(tuple(groups), server.group_base_dn)
        await directories.verify_password(server, role.identifier, asked.evidence, by_operator=operator)
        return ProvenPerson((), None) if kinds else None

    async def _mapped_groups(self, webservice: ResourceName, server: LdapServer) -> Sequence[str]:
        """Return the names to search for among a person's groups, where the directory reports groups by other names."""
        return await self._mapped_roles.group_names(webservice) if server.group_source is GroupSource.TOKEN_GROUPS else ()


def _make_admitted(facts: LdapFacts) -> Admitted:
    candidate, directory = facts.candidate, str(facts.webservice)
    return Admitted(facts.role, candidate.signing_key or "", candidate.creation, candidate.epoch, directory=directory)


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

    candidate: CandidateFacts
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
