"""The checks: what is asked of a subject, and what its answers must be."""
