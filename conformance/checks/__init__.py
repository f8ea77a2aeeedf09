"""The checks: the requests that each one sends to a subject, and the answers that it accepts."""
