"""The player in the terminal: the steps on the left, what is there after the chosen one on the right."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from conformance.play.narration import decides
from conformance.play.story import Step, fork, options_at, steps_of
from conformance.play.world import OWNER, Scenario
from conformance.requirements.catalogue import load

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Player(App[None]):
    """Plays one scenario, and the runs that branch off it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 2; padding: 0 1; background: $panel; }
    #story { width: 3fr; border: none; padding: 0; }
    #state { width: 2fr; padding: 0 1; border-left: solid $panel; }
    #now { height: 5; padding: 0 1; background: $boost; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "go(1)", "Forward", priority=True),
        Binding("left,h", "go(-1)", "Back", priority=True),
        Binding("d", "decision", "Next decision"),
        Binding("home,g", "first", "First", priority=True, show=False),
        Binding("end,G", "last", "Last", priority=True),
        Binding("f", "fork", "Fork here"),
        Binding("s", "story", "Story"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.steps: list[Step] = list(steps_of(scenario))
        self.at = 0
        self.forks: list[str] = []
        self._rules = load()

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal():
            yield OptionList(id="story")
            with VerticalScroll(id="state"):
                yield Static(id="view")
        yield Static(id="now")
        yield Footer()

    def on_mount(self) -> None:
        self._show_steps()

    # Keys

    def action_go(self, by: int) -> None:
        self._go(self.at + by)

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self.steps) - 1)

    def action_decision(self) -> None:
        later = [at for at, step in enumerate(self.steps) if at > self.at and decides(step.happening)]
        self._go(later[0] if later else len(self.steps) - 1)

    def action_story(self) -> None:
        """Back to the scenario's own story."""
        self.steps, self.forks = list(steps_of(self.scenario)), []
        self._show_steps()

    def action_fork(self) -> None:
        choices = self.steps[self.at].choices
        self.push_screen(_Fork(options_at(self.scenario, choices)), self._follow)

    def _follow(self, option: str | None) -> None:
        if option is None:
            return
        choices = self.steps[self.at].choices
        before = sum(len(each.choices) <= len(choices) for each in self.steps)
        self.steps = fork(self.scenario, choices, option)
        self.forks.append(option)
        self.at = min(before, len(self.steps) - 1)
        self._show_steps()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        story = event.option_list  # its events arrive late: an old one says nothing
        if story.id == "story" and story.highlighted == event.option_index != self.at:
            self._go(event.option_index)

    # What is shown

    def _show_steps(self) -> None:
        story = self.query_one("#story", OptionList)
        at = self.at
        story.clear_options()
        story.add_options([Option(self._line(step)) for step in self.steps])
        title = Text(self.scenario.title, style="bold")
        below = f"What if: {', then: '.join(self.forks)}" if self.forks else self.scenario.about
        title.append(f"\n{below}", style="not bold")
        self.query_one("#title", Static).update(title)
        self._go(at)

    def _line(self, step: Step) -> Text:
        lane = step.happening.lane
        lanes = list(self.scenario.clients)
        colour = COLOURS[lanes.index(lane) % len(COLOURS)] if lane in lanes else "white"
        indent = "  " if lane == OWNER else ""
        return Text.assemble(indent, ("▌", colour), (step.text, "" if decides(step.happening) else "dim"))

    def _go(self, at: int) -> None:
        self.at = max(0, min(at, len(self.steps) - 1))
        story = self.query_one("#story", OptionList)
        if story.highlighted != self.at:
            story.highlighted = self.at
        step = self.steps[self.at]
        now = Text(f"{self.at + 1} of {len(self.steps)}. {step.text}.", style="bold")
        if step.rule is not None:
            rule = self._rules.requirement(step.rule)
            now.append(f"\n{rule.id}: {rule.paraphrase}", style="not bold dim")
        self.query_one("#now", Static).update(now)
        self.query_one("#view", Static).update(_view(step))


def _view(step: Step) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_row(Text("Readers see", style="bold"))
    for who, sees in step.view.readers:
        table.add_row(Text.assemble((f"{who}: ", "dim"), sees))
    table.add_row(Text("\nThe owner's ledger", style="bold"))
    for row in step.view.ledger:
        table.add_row(Text(" ".join(row)))
    table.add_row(Text("\n_delta_log (! not synced)", style="bold"))
    for name, durable, _ in step.view.log:
        table.add_row(Text(name if durable else f"{name} !", style="" if durable else "red"))
    return table


class _Fork(ModalScreen[str | None]):
    """What else may happen now."""

    CSS = """
    _Fork { align: center middle; }
    #fork OptionList { border: none; }
    #fork { width: 60; height: auto; max-height: 20; border: solid $accent; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, options: list[tuple[str, str]]) -> None:
        super().__init__()
        self._options = options

    def compose(self) -> ComposeResult:
        with Vertical(id="fork"):
            yield Static("What if now (Esc: nothing):")
            yield OptionList(*(Option(text, id=str(at)) for at, (_, text) in enumerate(self._options)))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._options[event.option_index][0])

    def action_cancel(self) -> None:
        self.dismiss(None)
