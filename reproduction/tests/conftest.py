"""Settings of all tests."""

import hypothesis

hypothesis.settings.register_profile("rhocal", deadline=None, derandomize=True)
hypothesis.settings.load_profile("rhocal")
