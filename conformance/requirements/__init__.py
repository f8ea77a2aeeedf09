"""What the kit holds its subjects to: every requirement of the protocol's documents, with a stable id.

    from conformance.requirements.catalogue import load

    load().requirement("MC-BACKFILL-03").paraphrase

The requirements are data, in the TOML files of this package; `catalogue` gives them types, `auditing` splits documents
into sentences and compares the two. `delta-commit-conformance requirements` lists them.
"""
