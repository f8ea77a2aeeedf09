"""The conformance kit: tests any commit owner, or any Delta client, with concurrent clients and faults.

Only `adapters.reference`, `simulation.reference` and `teaching.play` import `refimpl`.
"""
