"""A scenario: a subject, simulated clients that send it requests, and a record of all requests and answers."""
