"""The requirements of the protocol's documents, each with a stable id. The kit tests its subjects against them.

    from conformance.requirements.catalogue import load

    load().requirement("MC-BACKFILL-03").paraphrase

The requirements are data, in the TOML files of this package. `catalogue` loads them as typed values. A tool of
the tests, `auditing`, splits the documents into sentences and compares these with the requirements.
`delta-commit-conformance requirements` lists them.
"""
