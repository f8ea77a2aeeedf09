"""What the kit found in software of other people: each finding with the file that shows it again.

    python -m conformance.findings                      the page: who was tested, what was found
    python -m conformance.findings ID                   one finding, as it can be sent to its maintainers
    python -m conformance.findings --record REPORT      take a run into the page: who was tested, and the verdicts
    python -m conformance.findings --keep BUNDLE ID     keep the finding of a bundle, to be described in `about.toml`

`runs` has one file for each subject that was tested, `found` one folder for each finding. Every requirement that a run
found violated is explained by a finding of that subject, and every finding is replayed by the tests. What other
people's clients do wrong with an owner that is right is in `clients.toml`: a test is what shows it again.
"""
