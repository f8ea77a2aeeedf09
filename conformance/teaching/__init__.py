"""Shows the protocol to people: scenarios, puzzles, and an exercise in which they build an owner."""
