"""Subjects by name: opening them, serving them to other processes, and the first requests that tell whether an adapter
works."""
