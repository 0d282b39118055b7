"""Fixtures for all test suites: the embedded broker and unused names."""

pytest_plugins = ["keygrouping_local.testing"]
