"""How values are shown to people."""

from __future__ import annotations

import datetime

import pytest

from refimpl.cli import output
from refimpl.cli.options import duration_ms, moment_ms
from refimpl.client.in_commit_timestamp import milliseconds
from refimpl.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "1970-01-01 00:00:00.000Z"),
        (1_795_232_058_477, "2026-11-21 03:34:18.477Z"),
        (None, "-"),
        (10**18, f"{10**18} ms"),
    ],
)
def test_moments_are_in_utc_with_their_milliseconds(milliseconds: int | None, shown: str) -> None:
    assert output.moment(milliseconds) == shown


@pytest.mark.parametrize(("number", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (3_000_000_000, "3.0 GB")])
def test_sizes_have_a_unit(number: int, shown: str) -> None:
    assert output.size(number) == shown


@pytest.mark.parametrize(
    ("given", "milliseconds"), [("5ms", 5), ("90s", 90_000), ("24h", 86_400_000), ("7d", 604_800_000)]
)
def test_lengths_of_time_have_a_unit(given: str, milliseconds: int) -> None:
    assert duration_ms(given) == milliseconds


@pytest.mark.parametrize("given", ["", "7", "-1d", "1.5h", "1y", "d"])
def test_what_is_no_length_of_time_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequestError):
        duration_ms(given)


def test_moments_without_a_zone_are_utc() -> None:
    assert moment_ms("2026-11-21T03:34:18.477") == moment_ms("2026-11-21T05:34:18.477+02:00") == 1_795_232_058_477
    assert moment_ms("1795232058477") == 1_795_232_058_477


def test_a_fraction_of_a_millisecond_leads_to_no_later_commit() -> None:
    """The same for `timestampAsOf`: both count whole milliseconds."""
    moment = datetime.datetime.fromisoformat("2026-11-21T03:34:18.477999+00:00")
    assert moment_ms(moment.isoformat()) == milliseconds(moment) == 1_795_232_058_477
    assert milliseconds(moment.replace(year=1969)) % 1000 == 477
    exact = [datetime.datetime.fromtimestamp(0, datetime.UTC).replace(microsecond=ms * 1000) for ms in range(1000)]
    assert [milliseconds(each) for each in exact] == list(range(1000))


def test_a_table_in_a_pipe_has_no_padding_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("n", "text"), [(1000, "a"), (2, "[bold]literally[/bold]")], right=("n",))
    assert capsys.readouterr().out == "    n  text\n1,000  a\n    2  [bold]literally[/bold]\n"


def test_the_names_of_columns_are_taken_literally(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table((">year", "=a", "[bold]b[/bold]"), [("1", "2", "3")])
    assert capsys.readouterr().out.splitlines()[0].split() == [">year", "=a", "[bold]b[/bold]"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2024, "2024"),
        (True, "true"),
        (0.5, "0.5"),
        (b"\x00\xff", "00ff"),
        (None, ""),
        ("null", "null"),
        ("", '""'),
        ([1, None, b"\x01"], "[1, null, 01]"),
        ({"a": True, "b": "x"}, "{a: true, b: x}"),
        ([("k", 1000)], "[k -> 1000]"),
    ],
)
def test_a_value_of_a_table_is_shown_as_it_is(value: object, shown: str) -> None:
    assert output.cell(value) == shown
