"""The command line: `divprism`, and `python -m divprism`."""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C while it loads ends it like later on."""
    try:
        from divprism.cli import main as run

        # The package has set another one while it was imported.
        if callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
