"""Properties are not judged by their speed: the first example may compile a kernel, and cores are shared."""

from hypothesis import settings

settings.register_profile("keygrouping", deadline=None, max_examples=50)
settings.load_profile("keygrouping")
