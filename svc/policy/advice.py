"""Advice about faults in a policy document: a sentence beneath the message of each kind (POL-73)."""

from __future__ import annotations

from typing import Final

from svc.model.errors import PolicyInvalid

#: By a part of the message; the first match counts.
_ADVICE: Final = (
    ("Did you mean", "Write that network, or the address alone."),
    ("An address has no zone here", "Remove the % and what follows it: by which interface a client comes isn't known."),
    ("Invalid IP address", "Write an address or a network, such as '10.1.2.3', '10.0.0.0/8' or '2001:db8::/32'."),
    ("does not include any layers", "Write the layers whose members the new hosts become, such as layers: [ !layer web ]."),
    (
        "not found in account",
        "Declare it in this document, or load the policy that declares it before; a PUT must keep what it belongs to, too.",
    ),
    (
        "Unrecognized data type",
        "Check the spelling of the tag: !policy, !user, !host, !group and the like. A text that begins with ! wants quotes.",
    ),
    ("between the tag and", "A tag ends with a blank."),
    ("Unknown kind", "Check the spelling of the kind against those that are listed."),
    ("No such attribute", "Check the spelling of the attribute, and how far it is indented."),
    ("Duplicate attribute", "Keep one of the two."),
    ("Duplicate anchor", "Give one of the anchors another name."),
    ("Unknown anchor", "Define the anchor with & before its first use, or put quotes around a text that begins with *."),
    ("is declared more than once", "Keep one of the declarations."),
    ("Dependency cycle", "Give one of them an owner outside of the circle."),
    ("Illegal absolute id", "Remove the leading slash: what is declared belongs to the policy around it."),
    ("Invalid relative reference", "Remove one '..': there are fewer policies around it than that."),
    (
        "blank id",
        "Write an id after the tag. Only inside of a policy, whose id then counts, may it be left out; a policy needs one.",
    ),
    ("Invalid public key format", "Write one line as ssh-keygen does: the algorithm, the key, and a name to call it by."),
    ("begins or ends with a blank", "Write the privilege, such as read or execute, without blanks around it."),
    ("is missing on type", "Add the attribute."),
    (
        "can't be a mapping",
        "Write a single value there, or a tag before the mapping; a text that begins with { wants quotes.",
    ),
    ("Expected a layer", "Write !layer before the id."),
    ("Expected a", "Give it a value of that type; a text that looks like something else wants quotes."),
    ("of another account", "Remove the account: a policy speaks of its own account only."),
    ("Multiple YAML documents", "Remove the line of three hyphens, or load the documents one by one."),
    ("More than", "Divide the document and load its parts one by one."),
    ("Nested more than", "Nest less deeply; a policy can be loaded into another."),
    ("at most", "Shorten it."),
    ("deleted with its owner", "Keep the owner in the document, or have the policy given another owner first."),
    ("not valid U", "Save the document as UTF-8."),
    ("Unexpected", "A document is a list: each statement begins with a hyphen and a tag, such as '- !user alice'."),
)

_ELSE: Final = "Check the indentation, the quotes and the brackets near this place."


def advise_on_fault(fault: PolicyInvalid) -> str:
    """Return the advice about a fault."""
    return next((text for words, text in _ADVICE if words in fault.message), _ELSE)
