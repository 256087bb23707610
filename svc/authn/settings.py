"""The meaning of authenticators' variables, above all of the JWT authenticator's, and their problems (AUTH-24 to AUTH-29);
and how settings and annotations name claims (AUTH-27).

A declared variable must be set, fit the others and be readable, or nobody is admitted. Two are ignored where nothing could
use them: ``identity-path`` without ``token-app-property``, and ``mapping-claims``, the old name of ``claim-aliases``,
beside that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from svc.crypto.key_sets import PRIVATE, build_key_set
from svc.crypto.vault import Vault
from svc.model.authentication import (
    AuthenticatorSettings,
    KeySource,
    Problem,
)
from svc.model.dialect import Dialect
from svc.model.errors import DOCUMENT_UNUSABLE, ISSUER_DIFFERS, LEADS, UNLISTED, WrongDataKey
from svc.model.key_sets import (
    ALGORITHMS,
    ALLOWING,
    DEFAULT_ALGORITHMS,
    EMPTY,
    SYNONYMS,
    TOKEN,
    TOKEN_LIMIT,
    UNUSABLE,
    KeySet,
)
from svc.model.names import ResourceName
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text
from svc.model.web_address import REMEDY, address_fault, provider_fault
from svc.net.trust import parse_certificates

#: Where keys may come from.
_SOURCES: Final = ("jwks-uri", "public-keys", "provider-uri")

VARIABLES: Final = (
    *_SOURCES,
    "ca-cert",
    "jwks-token",
    "algorithms",
    "issuer",
    "audience",
    "enforced-claims",
    "claim-aliases",
    "mapping-claims",
    "token-app-property",
    "identity-path",
)

#: Variables that are for the addresses of keys, and why not for those of http.
_OF_ADDRESSES: Final = {"ca-cert": "where no certificate is shown", "jwks-token": "where anybody between could read it"}

#: The longest value of a variable that is looked at, in bytes: every login has to read it.
_VALUE_LIMIT: Final = 64 * 1024

#: The most faults that are named of one variable.
_FAULTS: Final = 10

#: The name of a claim, or a path of such names, as an annotation has it.
_PART: Final = r"[A-Za-z$_|][A-Za-z0-9$_.|-]*"
CLAIM_NAME: Final = re.compile(f"{_PART}(?:/{_PART})*")

#: The name of a claim that is taken as it is written (AUTH-27), and what is meant as a path, though it is none.
_LITERAL: Final = re.compile(r"(?!.*:\Z)[^\s,:\[\]\x00-\x1f\x7f][^\s,\[\]\x00-\x1f\x7f]{0,255}")
_LIKE_PATH: Final = re.compile(r"(?=.*/)[A-Za-z0-9$_.|/-]+")

#: The sentence about names of these forms.
_FORM: Final = "a name begins with a letter, '$', '_' or '|', and goes on with letters, digits, '$', '_', '|', '-' and '.'"
_NO_LITERAL: Final = (
    "can't name a claim, since it has a blank, a comma, a bracket or a control character, begins or ends with ':',"
    " or has more than 256 characters"
)

#: How the fault of a path ends where claims within claims can't be named; remedies look for it.
NESTED: Final = "and claims within claims can be named in the dialect conjur alone"

#: Claims that no annotation may be named after: they say nothing about a host.
DENIED: Final = frozenset({"iss", "exp", "nbf", "iat", "jti", "aud"})

#: How the faults of lists end that have a remedy of their own; remedies look for these.
REGISTERED: Final = "is a registered claim, which says nothing about a host"
TWICE: Final = "stands there twice"

#: A place for a tenant in the issuer of a document for many tenants. No address that can be fetched has braces (NET-12).
_PATTERN: Final = re.compile(r"\{\w+\}")

#: A member that a discovery document lacks, or whose address may not be asked.
_MEMBER_AT_FAULT: Final = re.compile(rf"{DOCUMENT_UNUSABLE}(?:it names no|its) (\w+)")

#: Variables whose values are used as they are, to the last character.
_EXACT: Final = frozenset(
    {"jwks-uri", "provider-uri", "jwks-token", "issuer", "audience", "token-app-property", "identity-path"}
)

#: The values of declared variables by name: ``None`` for one that was never set, a problem for one that can't be read.
Values = Mapping[str, str | Problem | None]


@attrs.frozen
class Configuration:
    """The meaning of one authenticator's settings.

    Tokens must have ``issuer`` and ``audience``, unless these are ``None``; without an issuer that of a provider's document
    counts. ``identity_claim`` names the claim that identifies the host, below ``identity_path``; it is ``None`` when the
    path of the request does. ``enforced`` and ``aliases`` are those of ``annotations``, ``renamed`` the aliases by their
    claims; ``nested``: ``/`` in a claim's name walks into objects. Tokens may be signed with the ``algorithms``. ``keys``
    are ``None`` where a third party is queried about each login instead.
    """

    keys: KeySet | KeySource | None
    issuer: str | None = None
    audience: str | None = None
    identity_claim: str | None = None
    identity_path: str = ""
    enforced: tuple[str, ...] = ()
    aliases: Mapping[str, str] = attrs.Factory(dict)
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    nested: bool = attrs.field(default=False, eq=False, kw_only=True)
    renamed: Mapping[str, str] = attrs.field(init=False, eq=False, repr=False)

    @renamed.default
    def _aliases_by_claim(self) -> Mapping[str, str]:
        return {claim: alias for alias, claim in self.aliases.items()}


@attrs.frozen
class Misconfiguration:
    """Settings with which nobody can log in. ``keys`` is ``None`` when they don't say where keys come from.

    ``algorithms`` are all where it can't be known which: a token is then refused for the settings, not for its algorithm.
    """

    problems: tuple[Problem, ...]
    keys: KeySet | KeySource | None = None
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS


def open_values(account: str, branch: str, settings: AuthenticatorSettings, vault: Vault) -> dict[str, str | Problem | None]:
    """Open the values of the variables that are declared below the policy ``branch``."""
    values: dict[str, str | Problem | None] = {}
    for name, sealed in settings.values.items():
        resource = ResourceName(account, "variable", f"{branch}/{name}")
        if sealed is not None and len(sealed) > _VALUE_LIMIT:
            what = f"The value of the variable {name} has more than {_VALUE_LIMIT // 1024} KiB."
            values[name] = Problem(what, "Set it to a shorter one.")
            continue
        try:
            values[name] = None if sealed is None else vault.open(str(resource), sealed).decode("utf-8")
        except WrongDataKey:
            what = f"The value of the variable {name} does not open under the data key."
            values[name] = Problem(what, "Set it again, or start the server with the data key under which it was set.")
        except UnicodeDecodeError:
            values[name] = Problem(f"The value of the variable {name} is not text in UTF-8.", "Set it to text in UTF-8.")
    return values


def parse_jwt_values(values: Values, dialect: Dialect) -> Configuration | Misconfiguration:
    """Return the meaning of the values of the JWT authenticator's variables."""
    problems: list[Problem] = []
    unused = {"identity-path"} if "token-app-property" not in values else set()
    if "claim-aliases" in values:
        unused.add("mapping-claims")
    texts = usable_texts(values, tuple(name for name in VARIABLES if name not in unused), _EXACT, problems)
    algorithms = parse_algorithms(values, texts, problems)
    keys = _parse_keys(values, texts, algorithms, problems)
    issuer = _expected_issuer(values, texts, dialect)
    of_aliases = "claim-aliases" if "claim-aliases" in values else "mapping-claims"
    aliases, faults = read_aliases(texts.get(of_aliases, ""), nested=dialect.nested_claims)
    if of_aliases in texts:
        remedy = "Set it to items of the form 'annotation: claim', with commas between."
        problems += (_unusable_problem(of_aliases, fault, _claim_remedy(remedy, fault)) for fault in faults[:_FAULTS])
    of_claims = texts.get("enforced-claims", "")
    enforced, faults = read_enforced(of_claims, nested=dialect.nested_claims, renamed=set(aliases.values()))
    if "enforced-claims" in texts:
        remedy = "Set it to names of claims, with commas between; a name with other signs needs an alias in claim-aliases."
        problems += (_unusable_problem("enforced-claims", fault, _claim_remedy(remedy, fault)) for fault in faults[:_FAULTS])
    identity_claim = texts.get("token-app-property")
    if identity_claim is not None:
        fault = claim_fault(identity_claim, nested=dialect.nested_claims)
        if fault is not None:
            remedy = _claim_remedy("Set it to the name of the claim that names the host.", fault)
            problems.append(_unusable_problem("token-app-property", fault, remedy))
    if keys is None or problems:
        return Misconfiguration(tuple(problems), keys, algorithms)
    audience, path = texts.get("audience"), texts.get("identity-path", "")
    nested = dialect.nested_claims
    return Configuration(keys, issuer, audience, identity_claim, path, enforced, aliases, algorithms, nested=nested)


def _claim_remedy(remedy: str, fault: str) -> str:
    """Return the remedy for a fault in the name of a claim."""
    if fault.endswith(REGISTERED):
        return "Remove that item, since this claim can't tell one host from another."
    if fault.endswith(TWICE):
        two_sided = fault.startswith(("the annotation ", "the claim "))
        return "Remove one of the two: each name may stand once on each side." if two_sided else "Remove one of the two."
    if not fault.endswith(NESTED):
        return remedy
    return (
        "Set it to claims at the top of the token; in one of Kubernetes, sub has namespace and name of the service account."
    )


def _unusable_problem(name: str, fault: str, remedy: str) -> Problem:
    return Problem(f"The variable {name} is not usable: {fault}.", remedy)


def usable_texts(values: Values, names: Sequence[str], exact: Container[str], problems: list[Problem]) -> dict[str, str]:
    """Return the readable values of the declared variables among ``names``; append the problems of the others.

    The values of those in ``exact`` may not begin or end with blanks, since every character counts. A byte order mark, which
    some editors put before all that they write, is no part of a value.
    """
    texts = {}
    for name in (name for name in names if name in values):
        value = values[name]
        if isinstance(value, str):
            value = value.removeprefix("\ufeff")
        if isinstance(value, Problem):
            problems.append(value)
        elif value is None:
            what = f"The variable {name} is declared and has no value."
            problems.append(Problem(what, "Set it, or remove its declaration from the policy."))
        elif not value.strip():
            what = f"The variable {name} is blank."
            problems.append(Problem(what, "Set it to a value, or remove its declaration from the policy."))
        elif name in exact and value != value.strip():
            what = f"The variable {name} begins or ends with a blank or line end."
            problems.append(Problem(what, "Set it again without: every character counts."))
        else:
            texts[name] = value
    return texts


def parse_algorithms(values: Values, texts: Mapping[str, str], problems: list[Problem]) -> tuple[str, ...]:
    """Return the algorithms that tokens may be signed with; all where they are unknown (see ``Misconfiguration``)."""
    if "algorithms" not in values:
        return DEFAULT_ALGORITHMS
    if "algorithms" not in texts:
        return ALGORITHMS
    names = [SYNONYMS.get(name, name) for name in re.split(r"\s*,\s*|\s+", texts["algorithms"].strip())]
    unknown = list(dict.fromkeys(name for name in names if name not in ALGORITHMS))
    remedy = f"Set it to some of {', '.join((*ALGORITHMS, *SYNONYMS))}, with commas or blanks between; case matters."
    problems += (
        _unusable_problem("algorithms", f"{quote_text(name)} is no algorithm that it can name", remedy)
        for name in unknown[:_FAULTS]
    )
    return ALGORITHMS if unknown else tuple(name for name in ALGORITHMS if name in names)


def _parse_keys(
    values: Values, texts: Mapping[str, str], algorithms: tuple[str, ...], problems: list[Problem]
) -> KeySet | KeySource | None:
    """Return the keys or their source; ``None`` when there is none, or it can't be used."""
    before = len(problems)
    declared = [name for name in _SOURCES if name in values]
    if not declared:
        remedy = f"Declare and set one of the variables {_join_names(_SOURCES)}."
        problems.append(Problem("It is not said where keys come from.", remedy))
    elif len(declared) > 1:
        what = f"The variables {_join_names(declared)} are declared beside each other."
        problems.append(Problem(what, "Leave one of them in the policy."))
    for name in ("jwks-uri", "provider-uri"):
        check_address(name, texts, problems)
    for name in _OF_ADDRESSES:
        if name in values:
            _check_address_variable(name, declared, texts, problems)
    check_authorities("ca-cert", texts, problems)
    if not TOKEN.fullmatch(texts.get("jwks-token", "-")) or len(texts.get("jwks-token", "")) > TOKEN_LIMIT:
        remedy = "Set it to the token alone, without a word before it."
        problems.append(_unusable_problem("jwks-token", "it holds no bearer token", remedy))
    if "public-keys" in values and "issuer" not in values:
        what = "The variable public-keys is declared without the variable issuer."
        problems.append(Problem(what, "Declare issuer, and set it to the 'iss' of tokens."))
    keys = _public_keys(values, texts["public-keys"], algorithms, problems) if "public-keys" in texts else None
    if len(problems) > before or any(name in values and name not in texts for name in (declared[0], *_OF_ADDRESSES)):
        return keys if declared == ["public-keys"] else None
    discovered, authorities, token = declared[0] == "provider-uri", texts.get("ca-cert"), texts.get("jwks-token")
    return keys or KeySource(texts[declared[0]], discovered, authorities, algorithms, token)


def check_address(name: str, texts: Mapping[str, str], problems: list[Problem]) -> None:
    """Append what is wrong with an address that is set, and that of a provider may have no query (AUTH-29, NET-12)."""
    discovered = name == "provider-uri"
    fault = (provider_fault if discovered else address_fault)(texts[name]) if name in texts else None
    if fault is not None:
        no_query = "Set it to the provider's issuer, which has no query." if discovered and "?" in texts[name] else REMEDY
        problems.append(_unusable_problem(name, fault, no_query))


def check_authorities(name: str, texts: Mapping[str, str], problems: list[Problem]) -> None:
    """Append what is wrong with the certificates of authorities that are set (AUTH-29, NET-6)."""
    if name in texts and (fault := _authorities_fault(texts[name])) is not None:
        remedy = "Set it to the authorities' certificates in PEM, with its line ends, and without a key."
        problems.append(Problem(f"The variable {name} {fault}.", remedy))


@lru_cache(64)
def _authorities_fault(text: str) -> str | None:
    try:
        parse_certificates(text)
    except ValueError as error:
        return str(error)
    return None


def _join_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _check_address_variable(variable: str, declared: list[str], texts: Mapping[str, str], problems: list[Problem]) -> None:
    """Append why a variable that is for ``https`` addresses of keys has none to be used for."""
    uris = [name for name in declared if name != "public-keys"]
    if not uris:
        what = f"The variable {variable} is declared, and there is no address to use it for."
        problems.append(Problem(what, "Remove it from the policy, or declare jwks-uri or provider-uri."))
    for name in uris:
        if texts.get(name, "").lower().startswith("http:"):
            what = f"The variable {variable} is declared, and {name} begins with http: {_OF_ADDRESSES[variable]}."
            problems.append(Problem(what, "Set an address that begins with https:."))


def _public_keys(values: Values, text: str, algorithms: tuple[str, ...], problems: list[Problem]) -> KeySet | None:
    """Read ``{"type": "jwks", "value": {"keys": [...]}}``; a set without usable key is a problem."""
    try:
        document = parse_json_object(text.encode("utf-8"))
        value = document.get("value")
        if document.get("type") != "jwks":
            raise Malformed('its type is not "jwks"')
        if not isinstance(value, dict):
            raise Malformed("its value is no JSON object")
        keys = build_key_set(value, algorithms)
        if not keys.keys:
            problems.append(_unusable_problem("public-keys", keys.why_unusable, _public_remedy(keys, values)))
    except Malformed as error:
        remedy = 'Set it to {"type": "jwks", "value": {"keys": [...]}} with the provider\'s public keys.'
        problems.append(_unusable_problem("public-keys", str(error), remedy))
        return None
    return keys


def _public_remedy(keys: KeySet, declared: Container[str]) -> str:
    """Return what to do about a variable public-keys without usable key."""
    if keys.wanted:
        return keys_remedy(keys.why_unusable, VARIABLES, declared)
    if not keys.problems and not keys.unused:
        return "Put the provider's keys into the variable."
    if any(reason.endswith(PRIVATE) for reason in keys.problems):
        return "Set the variable again without the private members d, p, q, dp, dq and qi, and without symmetric keys."
    return "Set the variable to public keys of the provider that can be used; it is said of each what is wrong with it."


def keys_remedy(why: str, variables: Container[str], declared: Container[str] = ()) -> str:
    """Return what to do about a set without usable key, by ``KeySet.why_unusable``.

    These ``variables`` may be set, and policy has ``declared`` these.
    """
    wanted = why.rpartition(ALLOWING)[2].replace(" or ", ",") if ALLOWING in why else ""
    if wanted and "algorithms" in variables:
        act = "Set the variable algorithms" if "algorithms" in declared else "Declare the variable algorithms and set it"
        return f"{act} to what the provider signs with: {wanted}."
    if wanted:
        return f"Have the provider sign with {' or '.join(DEFAULT_ALGORITHMS)}."
    if why.endswith(EMPTY):
        return "Have the provider make a key, then refresh the keys: some make one only when they first sign."
    return "Have the provider publish a public key that can be used; it is said of each what is wrong with it."


def _expected_issuer(values: Values, texts: Mapping[str, str], dialect: Dialect) -> str | None:
    """Return the issuer that tokens must name: the variable, else, if mandatory and no provider says it, the keys' host."""
    if "issuer" in values:
        return texts.get("issuer")
    if "provider-uri" in values or not dialect.issuer_mandatory or "jwks-uri" not in texts:
        return None
    return _host_of(texts["jwks-uri"])


def _host_of(uri: str) -> str:
    """Return the host of an address as it is written there, without port."""
    authority = uri.partition("://")[2].partition("/")[0].partition("?")[0]
    host, bracket, _ = authority.partition("]")
    return host + bracket if bracket else authority.partition(":")[0]


#: The end of a sentence that begins with the list of authenticators.
REREAD: Final = ", and send SIGHUP to the server, which reads its file again; or start it again"


def why_disabled(dialect: Dialect, service: str, listed: bool, switched: bool | None) -> Problem | None:
    """Return why an authenticator may not be used; the dialect says how listing and switching go together (AUTH-2)."""
    if dialect.is_enabled(listed, switched):
        return None
    if dialect.switch_enables:
        return Problem(
            f"{quote_text(service)} is neither listed in the configuration nor switched on.",
            f"Switch it on, or list it in the setting authenticators{REREAD}.",
        )
    if not listed:
        return Problem(
            f"{quote_text(service)} is not listed in the configuration.",
            f"List it in the setting authenticators{REREAD}.",
        )
    return Problem(f"{quote_text(service)} is switched off.", "Switch it on.")


def fetch_problem(what: str, why: str, variables: Container[str], declared: Container[str] = ()) -> Problem:
    """Return the problem that something can't be fetched, with the remedy that an authenticator of these variables has.

    Policy has ``declared`` some of them.
    """
    named = [name for name in ("ca-cert", "jwks-token") if name in variables]
    if UNLISTED in why:
        remedy = "If the address is right, list its network in --allow-private-providers, and start the server again."
    elif LEADS in why:
        remedy = _redirect_remedy(why, variables, declared)
    elif ISSUER_DIFFERS in why:
        remedy = "Set provider-uri to the issuer that the document names"
        if _PATTERN.search(why.partition(ISSUER_DIFFERS)[2]):
            remedy = "Name your own tenant in provider-uri: the issuer that the document names is a pattern, not an address"
        elif "jwks-uri" in variables:
            remedy += ", or, if that can't be asked from here, declare jwks-uri and issuer in its place"
        remedy += "."
    elif (member := _MEMBER_AT_FAULT.search(why)) is not None:
        remedy = f"Have the provider name a usable {member[1]} in its document."
        if "jwks-uri" in variables:
            remedy = "Declare jwks-uri and issuer in the place of provider-uri."
    elif UNUSABLE in why:
        remedy = keys_remedy(why, variables, declared)
    else:
        remedy = f"Mend {', '.join(['the address', *named])}, or what is between provider and server; then refresh the keys."
    return Problem(f"{what}: {why.removesuffix('.')}.", remedy)


def _redirect_remedy(why: str, variables: Container[str], declared: Container[str]) -> str:
    """Return what to do about an address that leads to another, as ``fetch_problem`` is given it."""
    if "jwks-uri" in declared:
        remedy = "Set jwks-uri to where it leads"
    elif "/.well-known/" in why.partition(LEADS)[0]:
        remedy = "Set provider-uri to the issuer whose document is there"
    else:
        remedy = "Have the provider's document name the address to which it leads"
        if "jwks-uri" in variables:
            remedy += ", or declare jwks-uri and issuer in its place"
    return f"{remedy}, if that is the provider's; else mend what is between provider and server, then refresh the keys."


@lru_cache(1024)  # the names of annotations, which policies have
def name_fault(name: str, *, nested: bool) -> str | None:
    """Return what is wrong with ``name`` as the name of a claim, ``None`` when nothing is (AUTH-27)."""
    if "/" in name and not nested and not _is_literal(name):
        return f"{quote_text(name)} is a path, {NESTED}"
    if not CLAIM_NAME.fullmatch(name):
        return f"{quote_text(name)} can't name a claim in an annotation, where {_FORM}"
    return None


def _is_literal(name: str) -> bool:
    """Return whether a name that no annotation can have is taken as it is written, as that of an alias."""
    return _LITERAL.fullmatch(name) is not None and _LIKE_PATH.fullmatch(name) is None


def claim_fault(name: str, *, nested: bool) -> str | None:
    """Return what is wrong with ``name`` as that of a claim which no annotation is named after, ``None`` when nothing is.

    It may be an address, or hold other signs: then it is taken as it is written (AUTH-27).
    """
    fault = name_fault(name, nested=nested)
    if fault is None or _is_literal(name):
        return None
    if fault.endswith(NESTED):
        return fault
    if _LIKE_PATH.fullmatch(name):
        return f"{quote_text(name)} is no path of claims, in which {_FORM.replace('a name', 'each name')}"
    return f"{quote_text(name)} {_NO_LITERAL}"


def read_enforced(text: str, *, nested: bool, renamed: Container[str] = ()) -> tuple[tuple[str, ...], list[str]]:
    """Return the claims of ``claim, claim`` and the faults of the text, phrases that can stand after a colon.

    Claims that are ``renamed`` have an alias, and so may have names that no annotation has.
    """
    names: dict[str, None] = {}
    faults: list[str] = []
    for item in _split_items(text, faults):
        if item in names:
            faults.append(f"{quote_text(item)} {TWICE}")
        else:
            names[item] = None
            faults += [] if item in renamed and item not in DENIED else _claim_faults(item, nested=nested)
    return tuple(names), faults


def read_aliases(text: str, *, nested: bool) -> tuple[Mapping[str, str], list[str]]:
    """Return the aliases of ``annotation: claim, annotation: claim`` and its faults. Aliases of aliases are not followed.

    A claim is all that stands behind the first colon: ``user: cognito:username``.
    """
    aliases: dict[str, str] = {}
    claims: set[str] = set()
    faults: list[str] = []
    for item in _split_items(text, faults):
        alias, _, claim = (part.strip() for part in item.partition(":"))
        if not alias or not claim:
            faults.append(f"{quote_text(item)} is not of the form 'annotation: claim'")
            continue
        if "/" in alias:
            faults.append(f"{quote_text(alias)} holds a slash, which the name of an annotation on the left may not")
        else:
            faults += _claim_faults(alias, nested=False)
        faults += _claim_faults(claim, nested=nested, fault_of=claim_fault)
        if alias in aliases:
            faults.append(f"the annotation {quote_text(alias)} {TWICE}")
        if claim in claims:
            faults.append(f"the claim {quote_text(claim)} {TWICE}")
        aliases[alias] = claim
        claims.add(claim)
    return aliases, faults


def _split_items(text: str, faults: list[str]) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        faults.append("an item is empty: commas stand between items, not before the first or after the last")
    return [item for item in items if item]


def _claim_faults(name: str, *, nested: bool, fault_of: Callable[..., str | None] = name_fault) -> list[str]:
    if name in DENIED:
        return [f"{quote_text(name)} {REGISTERED}"]
    fault = fault_of(name, nested=nested)
    return [] if fault is None else [fault]
