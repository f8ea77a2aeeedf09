"""Owners that are Java classes, as subjects of the kit."""
