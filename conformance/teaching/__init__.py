"""Shows the protocol to people: a player, puzzles, and an exercise in which they build an owner."""
