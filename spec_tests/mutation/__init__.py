"""A mutation run over the source that decides what is durable and who may commit. `python -m spec_tests.mutation`."""
