"""The tests mirror ``svc/``: a module here tests the module of the same name there."""

import os

from hypothesis import settings

#: How many examples of each property a run tries; ``SVC_TEST_EXAMPLES`` asks for more.
EXAMPLES = int(os.environ.get("SVC_TEST_EXAMPLES", "25"))

# A loaded machine is no fault of what is tested, and a run leaves nothing behind for the next.
settings.register_profile("svc", deadline=None, database=None, max_examples=EXAMPLES)
settings.load_profile("svc")
