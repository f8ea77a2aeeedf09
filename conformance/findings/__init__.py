"""The bugs that the kit found in published owners and clients, each with the file that reproduces it.

    delta-commit-conformance findings                      the page: subjects and findings
    delta-commit-conformance findings ID                   one finding, as a report for the maintainers
    delta-commit-conformance findings --record REPORT      add a run to the page: subject and verdicts
    delta-commit-conformance findings --keep BUNDLE ID     keep the finding of a bundle, to be described in `about.toml`

`runs` has one file for each subject that was tested, `found` one folder for each finding. Every requirement that a run
found violated is explained by a finding of that subject, and every finding is replayed by the tests.
"""
