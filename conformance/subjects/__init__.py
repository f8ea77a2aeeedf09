"""Subjects by name: opens them, serves them to other processes, and sends the first requests, which show whether an
adapter works."""
