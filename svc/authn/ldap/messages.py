"""The messages of LDAP (RFC 4511): requests, written by ldaptor, and answers, read strictly.

Note [Strict answers]. ldaptor doesn't read the answers: its decoder exceeds Python's stack on elements that are nested a
thousand deep, waits for ever when an element within a whole message is cut off, prints what it doesn't know to standard
output, and checks shapes with ``assert``. The five answers that this client understands are flat lists of elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from ldaptor.protocols import pureldap

from svc.model.text import quote_text

#: The longest message, in bytes.
MESSAGE_LIMIT: Final = 64 * 1024

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_OCTETS: Final = 0x04
_ENUMERATED: Final = 0x0A
_SET: Final = 0x31
_BOOLEAN: Final = 0x01
_CONTROLS: Final = 0xA0
_REFERRAL: Final = 0xA3

#: Tags of the control of password policies: a warning, the seconds or the logins that are left in it, and an error.
_WARNING: Final = 0xA0
_EXPIRES_IN: Final = 0x80
_GRACE_LEFT: Final = 0x81
_POLICY_ERROR: Final = 0x81

_LENGTHS: Final = 4
_CODE_BYTES: Final = 2

#: The bytes of a directory's message about a result that are kept.
_DIAGNOSTIC: Final = 200

#: The host of an address to which a directory refers (RFC 4516), and the most that are named.
_REFERRED: Final = re.compile(rb"ldaps?://(?:[^@/?#]*@)?(\[[^\]/?#]*\]|[^:/?#]+)", re.IGNORECASE)
_REFERRED_MOST: Final = 3

#: The results of RFC 4511 A.1.
_RESULTS: Final = {
    0: "success",
    1: "operations error",
    2: "protocol error",
    3: "time limit exceeded",
    4: "size limit exceeded",
    5: "compare false",
    6: "compare true",
    7: "authentication method not supported",
    8: "stronger authentication required",
    10: "referral",
    11: "administrative limit exceeded",
    12: "unavailable critical extension",
    13: "confidentiality required",
    14: "SASL bind in progress",
    16: "no such attribute",
    17: "undefined attribute type",
    18: "inappropriate matching",
    19: "constraint violation",
    20: "attribute or value exists",
    21: "invalid attribute syntax",
    32: "no such object",
    33: "alias problem",
    34: "invalid DN syntax",
    36: "alias dereferencing problem",
    48: "inappropriate authentication",
    49: "invalid credentials",
    50: "insufficient access rights",
    51: "busy",
    52: "unavailable",
    53: "unwilling to perform",
    54: "loop detect",
    64: "naming violation",
    65: "object class violation",
    66: "not allowed on non-leaf",
    67: "not allowed on RDN",
    68: "entry already exists",
    69: "object class modifications prohibited",
    71: "affects multiple DSAs",
    80: "other",
}


#: The control of Behera's password policies: requested in a bind, and answered; and two that some directories add without a
#: request.
_PASSWORD_POLICY: Final = "1.3.6.1.4.1.42.2.27.8.5.1"
_PASSWORD_EXPIRED: Final = "2.16.840.1.113730.3.4.4"

_MUST_CHANGE: Final = "the password has to be changed first"
_EXPIRED: Final = "the password has expired"
_LOCKED: Final = "the account is locked"

#: The errors of that control; the others are about changing a password.
_POLICY_ERRORS: Final = {0: _EXPIRED, 1: _LOCKED, 2: _MUST_CHANGE}

#: Why Active Directory refuses a bind, by the code in its message (Windows' error codes).
_WINDOWS: Final = re.compile(r"\bdata ([0-9a-f]{3,8})\b", re.IGNORECASE)
_WINDOWS_CODES: Final = {
    0x530: "the account may not log in at this time",
    0x531: "the account may not log in from here",
    0x532: _EXPIRED,
    0x533: "the account is disabled",
    0x534: "the account may not log in in this way",
    0x568: "the account is in too many groups to log in",
    0x701: "the account has expired",
    0x773: _MUST_CHANGE,
    0x775: _LOCKED,
}


#: The attributes by which directories report that an account is disabled, whatever its password, and what they say then:
#: Active Directory by a bit of a number, 389 by a word, and Behera's password policies by the lock that nobody's time ends.
DISABLING_ATTRIBUTES: Final = ("userAccountControl", "nsAccountLock", "pwdAccountLockedTime")
_DISABLED_BIT: Final = 2
_NUMBER: Final = re.compile(rb"-?[0-9]{1,10}")
_LOCKED_FOR_EVER: Final = b"000001010000z"


class MalformedMessage(Exception):
    """An answer is no valid message of LDAP; the text says what is wrong, and quotes nothing of it."""


@attrs.frozen
class Result:
    """The result of an operation: a code of RFC 4511 A.1, and the directory's untrusted message.

    ``controls`` has the values of the response's controls, by their object identifiers. ``referred_hosts`` are those to
    which a referral leads.
    """

    operation: int
    code: int
    diagnostic: str
    controls: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    referred_hosts: Sequence[str] = ()

    @property
    def objection(self) -> str | None:
        """Return a directory's objection to the account of a bind, in words, whether or not it takes the password.

        ``None`` without one. A password that expires soon is none.

        :raises Garbled: its control can't be read.
        """
        policy = self.controls.get(_PASSWORD_POLICY)
        objection = None if policy is None else _policy_objection(policy)
        if objection is None and self.code == SUCCESS and _PASSWORD_EXPIRED in self.controls:
            return _MUST_CHANGE
        if objection is None and _PASSWORD_EXPIRED in self.controls:
            return _EXPIRED
        windows = _WINDOWS.search(self.diagnostic) if objection is None and self.code == INVALID_CREDENTIALS else None
        return objection if windows is None else _WINDOWS_CODES.get(int(windows[1], 16))

    def __str__(self) -> str:
        suffix = f", {self.diagnostic!r}" if self.diagnostic else ""
        hosts = f" to {' or '.join(map(quote_text, self.referred_hosts))}" if self.referred_hosts else ""
        return f"{self.code} ({_RESULTS.get(self.code, 'unknown')}{hosts}){suffix}"


@attrs.frozen
class Entry:
    """An entry that a search found, by its name; ``attributes`` are not looked at before they are wanted."""

    dn: bytes
    attributes: bytes = attrs.field(default=b"", repr=False)

    def values(self, attribute: str) -> dict[str, list[bytes]]:
        """Return the values of an attribute by its description in small letters, which may have options.

        :raises Garbled: the attributes can't be read.
        """
        found: dict[str, list[bytes]] = {}
        elements = _BerReader(self.attributes, 0, len(self.attributes))
        while elements.has_more:
            one = elements.read_nested(_SEQUENCE)
            description = one.read_value(_OCTETS).decode("utf-8", "replace").lower()
            values = one.read_nested(_SET)
            if description.partition(";")[0] == attribute:
                of_this = found.setdefault(description, [])
                while values.has_more:
                    of_this.append(values.read_value(_OCTETS))
        return found

    @property
    def is_disabled(self) -> bool:
        """Return whether it is the entry of a disabled account, by those of its attributes that are
        ``DISABLING_ATTRIBUTES``.

        :raises Garbled: the attributes can't be read.
        """
        control, locked, locked_time = (
            [value.lower() for several in self.values(name.lower()).values() for value in several]
            for name in DISABLING_ATTRIBUTES
        )
        by_number = any(_NUMBER.fullmatch(value) and int(value) & _DISABLED_BIT for value in control)
        return by_number or b"true" in locked or _LOCKED_FOR_EVER in locked_time


@attrs.frozen
class SearchReference:
    """A referral of a search to another directory, which isn't followed."""


@attrs.frozen
class LdapMessage:
    """One message; ``number`` is that of the request that it answers, 0 when it answers none."""

    number: int
    content: Result | Entry | SearchReference


BIND: Final = 0x61
SEARCH: Final = 0x65
EXTENDED: Final = 0x78

SUCCESS: Final = 0
CONSTRAINT_VIOLATION: Final = 19
UNWILLING: Final = 53
SIZE_LIMIT_EXCEEDED: Final = 4
REFERRAL: Final = 10
INAPPROPRIATE_AUTHENTICATION: Final = 48
INVALID_CREDENTIALS: Final = 49

#: Results of a directory that can't answer anybody now (RFC 4511 A.2): it has lost its way, run out of time or means, is
#: busy or unavailable, or hides an error of its own behind "other".
SERVER_FAILURES: Final = frozenset({1, 3, 11, 51, 52, 80})

#: Results of a bind that a directory may count as a failure of the account.
COUNTED_FAILURES: Final = frozenset({CONSTRAINT_VIOLATION, INVALID_CREDENTIALS, UNWILLING})

#: Those by which a host refers to another one: it is busy or unavailable.
TRY_OTHER_HOST: Final = frozenset({51, 52})

#: Results by which a directory says that it has no entry of a name: none there, no name of its, or another directory's.
NO_ENTRY: Final = frozenset({REFERRAL, 32, 34})


def bind_request(number: int, dn: str | bytes, password: bytes) -> bytes:
    """Return a simple bind (RFC 4513 5.1.3) with a request for the password policy's objection (``Result.objection``)."""
    request, controls = pureldap.LDAPBindRequest(dn=dn, auth=password), [(_PASSWORD_POLICY, False, None)]
    written: bytes = pureldap.LDAPMessage(request, controls, number).toWire()
    return written


def search_request(
    number: int,
    base_dn: str,
    wanted: pureldap.LDAPFilter,
    seconds: int,
    most: int = 2,
    attributes: Sequence[str] = (),
) -> bytes:
    """Return a search for at most so many entries below one: their names and attributes. Aliases are not followed."""
    request = pureldap.LDAPSearchRequest(
        baseObject=base_dn,
        scope=pureldap.LDAP_SCOPE_wholeSubtree,
        derefAliases=pureldap.LDAP_DEREF_neverDerefAliases,
        sizeLimit=most,
        timeLimit=seconds,
        typesOnly=0 if attributes else 1,
        filter=wanted,
        attributes=list(attributes) or ["1.1"],  # which stands for none (RFC 4511 4.5.1.8)
    )
    return _encode_request(number, request)


def attribute_request(number: int, dn: bytes, attribute: str, seconds: int) -> bytes:
    """Return a request for the values of one attribute of one entry."""
    request = pureldap.LDAPSearchRequest(
        baseObject=dn,
        scope=pureldap.LDAP_SCOPE_baseObject,
        derefAliases=pureldap.LDAP_DEREF_neverDerefAliases,
        sizeLimit=1,
        timeLimit=seconds,
        typesOnly=0,
        filter=pureldap.LDAPFilter_present("objectClass"),
        attributes=[attribute],
    )
    return _encode_request(number, request)


def start_tls_request(number: int) -> bytes:
    """Return a request to go on with TLS (RFC 4511 4.14.1)."""
    return _encode_request(number, pureldap.LDAPStartTLSRequest())


def _encode_request(number: int, request: pureldap.LDAPProtocolRequest) -> bytes:
    written: bytes = pureldap.LDAPMessage(request, id=number).toWire()
    return written


def first_message(arrived: bytes) -> bytes | None:
    """Return the first message, ``None`` until it has arrived as a whole.

    :raises Garbled: it is none, or longer than ``MESSAGE_LIMIT``.
    """
    if arrived and arrived[0] != _SEQUENCE:
        raise MalformedMessage("something else than an LDAP message arrived")
    span = _content_span(arrived, 0)
    if span is None:
        return None
    _, end = span
    if end > MESSAGE_LIMIT:
        raise MalformedMessage(f"a message is longer than {MESSAGE_LIMIT} bytes")
    return arrived[:end] if end <= len(arrived) else None


def parse_message(message: bytes) -> LdapMessage:
    """Parse one whole message (Note [Strict answers]). Controls of results are kept; further elements are ignored.

    :raises Garbled: it is none that this client understands.
    """
    elements = _BerReader(message, 0, len(message)).read_nested(_SEQUENCE)
    number = int.from_bytes(elements.read_value(_INTEGER, _LENGTHS), signed=True)
    operation = elements.next_tag()
    within = elements.read_nested(operation)
    match operation:
        case 0x61 | 0x65 | 0x78:
            code = int.from_bytes(within.read_value(_ENUMERATED, _CODE_BYTES), signed=True)
            within.read_value(_OCTETS)
            diagnostic = within.read_value(_OCTETS)[:_DIAGNOSTIC].decode("utf-8", "replace").rstrip("\0")
            hosts = _read_referral(within) if code == REFERRAL else ()
            return LdapMessage(number, Result(operation, code, diagnostic, _read_controls(elements), hosts))
        case 0x64:
            dn = within.read_value(_OCTETS)
            return LdapMessage(number, Entry(dn, within.read_content(_SEQUENCE) if within.has_more else b""))
        case 0x73:
            return LdapMessage(number, SearchReference())
        case _:
            raise MalformedMessage(f"an answer has the unexpected tag {operation:#x}")


def _read_referral(within: _BerReader) -> Sequence[str]:
    """Return the hosts to which a result refers (RFC 4511 4.1.10), each once and the first few."""
    hosts: dict[str, None] = {}
    if not within.has_more or within.next_tag() != _REFERRAL:
        return ()
    addresses = within.read_nested(_REFERRAL)
    while addresses.has_more:
        match = _REFERRED.match(addresses.read_value(_OCTETS))
        if match is not None:
            hosts[match[1].decode("utf-8", "replace")] = None
    return tuple(hosts)[:_REFERRED_MOST]


def _read_controls(elements: _BerReader) -> dict[str, bytes]:
    """Return the controls behind an operation (RFC 4511 4.1.11), each by its object identifier."""
    found: dict[str, bytes] = {}
    if not elements.has_more or elements.next_tag() != _CONTROLS:
        return found
    controls = elements.read_nested(_CONTROLS)
    while controls.has_more:
        control = controls.read_nested(_SEQUENCE)
        name = control.read_value(_OCTETS).decode("ascii", "replace")
        if control.has_more and control.next_tag() == _BOOLEAN:
            control.read_value(_BOOLEAN, 1)
        found[name] = control.read_value(_OCTETS) if control.has_more else b""
    return found


def _policy_objection(value: bytes) -> str | None:
    """Return the objection to an account in the control of a password policy (draft-behera-ldap-password-policy-10, 6.2)."""
    if not value:
        return None
    response, grace, error = _BerReader(value, 0, len(value)).read_nested(_SEQUENCE), False, None
    while response.has_more:
        if response.next_tag() == _WARNING:
            warning = response.read_nested(_WARNING)
            grace = warning.next_tag() == _GRACE_LEFT
            warning.read_value(_GRACE_LEFT if grace else _EXPIRES_IN)
        elif response.next_tag() == _POLICY_ERROR:
            error = int.from_bytes(response.read_value(_POLICY_ERROR, 1))
        else:
            raise MalformedMessage(f"a password policy has the unexpected tag {response.next_tag():#x}")
    if error is not None:
        return _POLICY_ERRORS.get(error, f"the password policy objects by its error {error}")
    return "the password has expired, and only some last logins are left to change it" if grace else None


def _content_span(octets: bytes, start: int) -> tuple[int, int] | None:
    """Return where the content of an element begins and ends; ``None`` when its length is cut off.

    :raises Garbled: its length is indefinite, which LDAP forbids, or takes more than four bytes.
    """
    first = octets[start + 1 : start + 2]
    if not first:
        return None
    begin = start + 2
    if first[0] < 0x80:
        return begin, begin + first[0]
    size = first[0] & 0x7F
    if not 0 < size <= _LENGTHS:
        raise MalformedMessage("an element has an impossible length")
    if len(octets) < begin + size:
        return None
    return begin + size, begin + size + int.from_bytes(octets[begin : begin + size])


class _BerReader:
    """Elements in a row, taken one by one."""

    def __init__(self, octets: bytes, start: int, end: int) -> None:
        self._octets = octets
        self._offset = start
        self._end = end

    def next_tag(self) -> int:
        """Return the tag of the next element."""
        if self._offset >= self._end:
            raise MalformedMessage("an answer lacks an element")
        return self._octets[self._offset]

    def read_value(self, tag: int, limit: int = MESSAGE_LIMIT) -> bytes:
        """Return the content of the next element, which has this tag and one to ``limit`` bytes; a text may be empty."""
        begin, end = self._next_span(tag)
        if end - begin > limit or (tag != _OCTETS and begin == end):
            raise MalformedMessage(f"an element with the tag {tag:#x} has an impossible length")
        return self._octets[begin:end]

    @property
    def has_more(self) -> bool:
        """Return whether there is another element."""
        return self._offset < self._end

    def read_content(self, tag: int) -> bytes:
        """Return the octets inside the next element, which must have this tag."""
        begin, end = self._next_span(tag)
        return self._octets[begin:end]

    def read_nested(self, tag: int) -> _BerReader:
        """Return the elements inside the next one, which must have this tag."""
        return _BerReader(self._octets, *self._next_span(tag))

    def _next_span(self, tag: int) -> tuple[int, int]:
        if self.next_tag() != tag:
            raise MalformedMessage(f"an answer has the tag {self.next_tag():#x} where {tag:#x} belongs")
        span = _content_span(self._octets, self._offset)
        if span is None or span[1] > self._end:
            raise MalformedMessage("an element is cut off")
        self._offset = span[1]
        return span
