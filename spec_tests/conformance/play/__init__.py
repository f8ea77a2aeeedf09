"""The player: scenarios, narration, terminal and page."""
