"""The tests mirror ``svc/``: a module here tests the module of the same name there."""
