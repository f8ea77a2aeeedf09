"""The conformance kit: tests any commit owner, or any Delta client, with concurrent clients and faults.

Only `adapters.reference`, `simulated_reference` and `play` import `refimpl`.
"""
