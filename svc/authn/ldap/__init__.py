"""LDAP: what is said to a directory, how its answers are read, and who is found in it."""
