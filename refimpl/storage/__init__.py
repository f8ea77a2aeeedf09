"""Files and their durability, locks, object stores, clocks and ids."""
