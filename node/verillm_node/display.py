"""What a devnet shows: lines with a clock, tokens as they come, tables of money."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Display:
    """Lines on standard output; safe to use from several threads."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """One line, after the seconds since the start."""
        clock = f"[dim]{time.monotonic() - self._began:6.1f}s[/dim]  "
        self._console.print(
            clock + (f"[{style}]{escape(text)}[/{style}]" if style else escape(text))
        )

    @contextlib.contextmanager
    def task(self, text: str) -> Iterator[None]:
        """A line before something that takes a while, and its seconds after it."""
        self.say(f"{text} …")
        began = time.monotonic()
        yield
        self.say(f"  done in {time.monotonic() - began:.1f} s", "dim")

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; numbers stand right."""
        table = Table(title=title, title_justify="left", title_style="bold")
        for place, name in enumerate(head):
            table.add_column(name, justify="right" if place else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        self._console.print(table)
