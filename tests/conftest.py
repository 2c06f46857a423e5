"""Settings of the whole suite."""

from hypothesis import settings

# The machine may be busy: a property says what holds, not how fast.
settings.register_profile("zerowait", deadline=None)
settings.load_profile("zerowait")
