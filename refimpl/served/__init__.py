"""An owner for many writers at once: group commit, and a fair queue. The owner works without it."""
