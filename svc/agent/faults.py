"""The faults of the agent. Each text is a sentence for operators, and holds no value."""

from __future__ import annotations


class AgentFault(Exception):
    """The root of everything below."""


class BadConfiguration(AgentFault):
    """The configuration can't be used; the text says where, and what to write instead."""


class TemplateFault(AgentFault):
    """A template can't be read, or fails with the values that there are."""


class FileFault(AgentFault):
    """A file can't be put in its place, or taken away."""


class SourceFault(AgentFault):
    """Nothing could be read: no server, no login, no answer. A later try may succeed."""
