"""pytest runs the cases of the kit, one item each, beside the tests of a commit owner.

    pytest --commit-owner-subject 'stdio:node my-owner.mjs' -k backfill -n 2

Without a subject the plugin does nothing, and imports no other module. Every process of pytest-xdist opens its own
subject.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("commit-owner", "conformance of a Delta commit owner or client")
    group.addoption(
        "--commit-owner-subject",
        metavar="SUBJECT",
        help="subject to test (forms: `delta-commit-conformance list subjects`; no default)",
    )
    group.addoption(
        "--commit-owner-profile", metavar="NAME", help="size of the run: quick (default), standard or thorough"
    )
    group.addoption(
        "--commit-owner-programs",
        type=int,
        metavar="N",
        help="only programs: all pinned ones, and N generated ones for each family, table feature and commit mode",
    )
    group.addoption("--commit-owner-seed", default=0, type=int, metavar="N", help="seed of the generated scenarios")
    group.addoption("--commit-owner-known", metavar="FILE", help="list of known failures with reasons (TOML)")
    group.addoption("--commit-owner-strict", action="store_true", help="also fail on a violated SHOULD")
    group.addoption("--commit-owner-timeout", default="10s", metavar="TIME", help="timeout of one answer")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("commit_owner_subject") is not None:
        from conformance.pytest_plugin.items import Kit

        config.pluginmanager.register(Kit(config), "commit-owner-kit")
