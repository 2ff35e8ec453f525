"""Progress on a terminal: a function for `progress=` that draws a bar with the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from divprism.data.wording import escaped

__all__ = ["progress_bar"]


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """Yield a function of a text and a fraction that draws on stderr while the block runs.

    A fraction of zero announces a step: its text stays on the screen, once, above the bar.

    >>> with progress_bar() as progress:
    ...     progress("half done", 0.5)
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    # stdout belongs to the result, which may go to a file or a pipe.
    console = Console(stderr=True, highlight=False)
    # Texts may hold square brackets, which are no markup.
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    # Transient: of a finished run only the announced steps and the warnings stay on screen.
    with Progress(*columns, console=console, transient=True) as bar:
        # Hidden until something has progressed: quick commands show no empty bar.
        task = bar.add_task("", total=1.0, visible=False)
        announced: set[str] = set()

        def update(text: str, fraction: float) -> None:
            if fraction > 0:
                bar.update(task, description=escaped(text), completed=fraction, visible=True)
            elif text not in announced:
                # The same step is announced for each of many models.
                announced.add(text)
                # By the console of the bar, which moves the bar down; another would write into it.
                console.print(escaped(text), markup=False)

        yield update
