"""Real engines and other people's libraries, with our owner."""
