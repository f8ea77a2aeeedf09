"""The conformance kit: replays concurrency and faults against any commit owner.

Nothing here imports `refimpl`, except `conformance.adapters.reference` and `conformance.simulated_reference`.
"""
