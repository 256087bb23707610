"""The audit's records: how they are written (RFC 5424), where they go, and what happens when they can't go there."""
