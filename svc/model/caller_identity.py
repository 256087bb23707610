"""Strict readers of the answers of AWS's Security Token Service to ``GetCallerIdentity``: the caller, or an error.

Note [No documents within documents]. An answer has no document type, so that there are no entities to expand and nothing to
fetch. Each element that is read occurs once, in the service's own namespace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.parsers import expat

import attrs

from svc.model.strict_json import Malformed
from svc.model.text import quote_text

_NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"

#: Most elements of an answer, and how deep they may be nested.
_ELEMENTS: Final = 64
_DEPTH: Final = 8

_NAME: Final = r"[A-Za-z0-9+=,.@_-]"
_ASSUMED: Final = re.compile(
    rf"arn:aws(?:-us-gov)?:sts::(?P<account>[0-9]{{12}}):assumed-role/(?P<role>{_NAME}{{1,64}})/{_NAME}{{2,64}}", re.ASCII
)
_CODE: Final = re.compile("[A-Za-z0-9.]{1,64}", re.ASCII)

_RESULT: Final = "GetCallerIdentityResponse/GetCallerIdentityResult"


@attrs.frozen
class CallerIdentity:
    """A caller as AWS names it, and its account."""

    arn: str
    account: str

    @property
    def assumed_role(self) -> str | None:
        """Return the name of the role that was assumed; ``None`` for a user, a federated user or the account itself."""
        match = _ASSUMED.fullmatch(self.arn)
        return match["role"] if match is not None and match["account"] == self.account else None


def read_caller(document: bytes) -> CallerIdentity:
    """Read the answer to ``GetCallerIdentity``.

    :raises Malformed: it is none.
    """
    texts = _element_texts(document)
    try:
        arn, account = texts[f"{_RESULT}/Arn"], texts[f"{_RESULT}/Account"]
    except KeyError:
        raise Malformed("it names no caller") from None
    if not re.fullmatch("[0-9]{12}", account, re.ASCII) or not re.fullmatch(r"arn:[!-~]{1,2000}", arn, re.ASCII):
        raise Malformed(f"it names a caller of an unknown form, {quote_text(arn)} of {quote_text(account)}")
    return CallerIdentity(arn, account)


def read_error(document: bytes) -> str:
    """Return the code of an error; its message may repeat the request, and isn't read.

    :raises Malformed: it is no error of the service.
    """
    code = _element_texts(document).get("ErrorResponse/Error/Code")
    if code is None or not _CODE.fullmatch(code):
        raise Malformed("it has no code of an error")
    return code


def _element_texts(document: bytes) -> Mapping[str, str]:
    """Return the text of each element by its path (Note [No documents within documents])."""
    texts: dict[str, str] = {}
    path: list[str] = []

    def start_element(name: str, _: object) -> None:
        namespace, _, local = name.rpartition(" ")
        if namespace != _NAMESPACE:
            raise Malformed("it has elements of another namespace")
        path.append(local)
        place = "/".join(path)
        if len(path) > _DEPTH or len(texts) >= _ELEMENTS or place in texts:
            raise Malformed("it has too many elements, or one twice")
        texts[place] = ""

    def end_element(_: str) -> None:
        path.pop()

    def add_text(more: str) -> None:
        texts["/".join(path)] += more

    def refuse_declaration(*_: object) -> None:
        raise Malformed("it has a document type")

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ProcessingInstructionHandler = refuse_declaration
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start_element, end_element, add_text
    try:
        parser.Parse(document, True)
    except expat.ExpatError:
        raise Malformed("it is not XML") from None
    return {place: found.strip() for place, found in texts.items()}
