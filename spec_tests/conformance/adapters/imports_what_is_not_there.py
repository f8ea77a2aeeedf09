"""A module of a subject that lacks a library."""

import a_library_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401
