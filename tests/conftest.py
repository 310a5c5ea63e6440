"""What every test runs under: the Hypothesis profile, chosen by the variable HYPOTHESIS_PROFILE.

`ci`, the default, draws the same examples on every run and remembers none, so that a change which
passes here passes everywhere. `deep` looks for what `ci` does not reach: new seeds each time, many
more examples, and a database, so that what it finds is tried first on the next run. A test may set
its own number of examples, as the random driver of whole caches does; a number set there holds
under both profiles.
"""

import os

from hypothesis import HealthCheck, settings

# A deadline would measure the machine: two busy cores make an innocent example slow.
settings.register_profile(
    "ci",
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
)
settings.register_profile(
    "deep",
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    # Drawing slowly is the point of a long campaign, not a fault of the test.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
