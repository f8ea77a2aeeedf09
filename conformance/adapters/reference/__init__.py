"""The reference owner and the reference client as subjects of the kit."""
