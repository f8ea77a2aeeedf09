"""A scenario: a subject, simulated clients that ask it, and a record of everything that was asked and answered."""
