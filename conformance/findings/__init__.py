"""The bugs that the kit found in published owners and clients, each with the file that reproduces it.

    delta-commit-conformance findings                      the page: subjects and findings
    delta-commit-conformance findings ID                   one finding, as a report for the maintainers

`implementations` has the report of each subject that was tested; `found` has one folder for each finding: the finding
and the history of a bundle, and `about.toml` with the fields of `stored.About`. Every requirement that a run
found violated is explained by a finding of that subject, and every finding is replayed by the tests.
"""
