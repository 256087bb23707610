"""The tests mirror ``svc/``: a module here tests the module of the same name there."""

from hypothesis import settings

# A loaded machine is no fault of what is tested, and a run leaves nothing behind for the next.
settings.register_profile("svc", deadline=None, database=None)
settings.load_profile("svc")
