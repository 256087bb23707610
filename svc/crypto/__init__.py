"""Keys, tokens and sealed values: every call into cryptography, but for TLS."""
