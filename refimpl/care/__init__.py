"""What an operator does with an owner: verify, repair, undrop, purge. The owner works without it."""
