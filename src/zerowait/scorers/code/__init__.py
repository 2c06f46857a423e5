"""The scorer ``code``: a response's program against the row's tests.

What is run, and what its outputs mean, is decided here; the engine's sandbox runs it.
"""
