"""What an operator does with an owner: verify, repair, undrop. The owner works without it."""
