"""What the kit found in software of other people."""
