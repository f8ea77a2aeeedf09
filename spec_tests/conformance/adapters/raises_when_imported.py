"""A module of a subject that is broken."""

raise RuntimeError("no configuration")
