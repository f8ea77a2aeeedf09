"""What an operator does with an owner: verify, repair, explain, undrop, purge. The owner works without it."""
