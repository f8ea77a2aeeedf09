"""Tables that an engine announces, creates itself, and leaves to this owner. The owner works without it."""
