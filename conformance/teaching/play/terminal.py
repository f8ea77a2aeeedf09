"""The player in the terminal: the steps on the left, the state after the selected one on the right."""

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from conformance.requirements.catalogue import load
from conformance.story import HEADINGS, Step, Story

LONGEST: Final = 140
"""The maximum length of a step's text in the list."""
COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Player(App[None]):
    """Plays one story, and its variations by other choices."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: auto; max-height: 3; padding: 0 1; background: $panel; }
    #story { width: 3fr; border: none; padding: 0; }
    #state { width: 2fr; padding: 0 1; border-left: solid $panel; }
    #now { height: auto; min-height: 5; max-height: 10; padding: 0 1; background: $boost; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "go(1)", "Forward", priority=True),
        Binding("left,h", "go(-1)", "Back", priority=True),
        Binding("d", "decision", "Decision"),
        Binding("home,g", "first", "First", priority=True, show=False),
        Binding("end,G", "last", "Last", priority=True),
        Binding("f", "fork", "Fork"),
        Binding("s", "story", "Story"),
        Binding("tab", "app.focus_next", "Next pane", priority=True),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, story: Story) -> None:
        super().__init__()
        self.story = story
        self.steps: Sequence[Step] = story.steps
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
        """Go to the next decision; without one, to the end."""
        self._go(next((at for at, step in enumerate(self.steps) if at > self.at and step.decides), len(self.steps) - 1))

    def action_story(self) -> None:
        """Go back to the original story."""
        self.steps, self.forks = self.story.steps, []
        self._show_steps()

    def action_fork(self) -> None:
        if options := self.story.forks.options(self.steps[self.at].choices):
            self.push_screen(_Fork(options), self._follow)
        else:
            self.notify("every client is done: there is no choice here")

    def _follow(self, option: str | None) -> None:
        if option is None:
            return
        choices = self.steps[self.at].choices
        before = [step for step in self.steps if len(step.choices) <= len(choices)]
        self.steps = [*before, *self.story.forks.follow(choices, option)]
        self.forks.append(option)
        self.at = min(len(before), len(self.steps) - 1)
        self._show_steps()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        story = event.option_list  # its events arrive late: ignore an old one
        if story.id == "story" and story.highlighted == event.option_index != self.at:
            self._go(event.option_index)

    # Display

    def _show_steps(self) -> None:
        story = self.query_one("#story", OptionList)
        at = self.at
        story.clear_options()
        story.add_options([Option(self._line(step)) for step in self.steps])
        title = Text(self.story.title, style="bold")
        below = f"What if: {', then: '.join(self.forks)}" if self.forks else self.story.about
        title.append(f"\n{below}", style="not bold")
        self.query_one("#title", Static).update(title)
        self._go(at)

    def _line(self, step: Step) -> Text:
        lane = step.happening.lane
        clients, others = self.story.clients, self.story.others
        colour = COLOURS[clients.index(lane) % len(COLOURS)] if lane in clients else "white"
        style = "" if step.decides else "dim"
        text = step.text if len(step.text) <= LONGEST else f"{step.text[: LONGEST - 1]}…"  # the full text is below
        return Text.assemble("  " if lane in others else "", ("▌", colour), (text, style))

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
    view = step.view
    readers, ledger, log = HEADINGS
    unsynced = "" if all(durable for _, durable, _ in view.log) else " (! not synced)"
    files = [Text(name if durable else f"{name} !", style="" if durable else "red") for name, durable, _ in view.log]
    parts = [
        (readers, [Text.assemble((f"{who}: ", "dim"), sees) for who, sees in view.readers]),
        (ledger, [Text(_entry(row)) for row in view.ledger]),
        (f"{log}{unsynced}", files),
    ]
    table = Table.grid(padding=(0, 1))
    for heading, rows in parts:
        table.add_row(Text(heading, style="bold"))
        for row in rows or [Text("nothing yet", style="dim")]:
            table.add_row(row)
        table.add_row("")
    return table


def _entry(row: tuple[str, ...]) -> str:
    """A row of the ledger: its key and its values."""
    return f"{row[0]}: {', '.join(value for value in row[1:] if value)}"


class _Fork(ModalScreen[str | None]):
    """The choices at this step."""

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
