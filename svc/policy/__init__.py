"""The policy language: YAML to statements, statements and present state to changes."""
