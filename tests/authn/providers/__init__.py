"""Tests of ``svc.authn.providers``."""
