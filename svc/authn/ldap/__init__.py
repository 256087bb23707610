"""LDAP: the authenticator, its client of directories, and the messages of both."""
