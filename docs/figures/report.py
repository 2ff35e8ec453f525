"""Take the screenshot of the README: the page of `divprism demo` in a browser.

    python docs/figures/report.py [--out docs/figures/report.png]

Needs Debian's chromium and chromium-driver, and the extras text, report and test.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from divprism.cli import app

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from browser import chromium, show  # noqa: E402


def main() -> None:
    """Run the demo, open its page, and save the first screen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures" / "report.png")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as window:
        page = Path(folder) / "report.html"
        CliRunner().invoke(app, ["demo", "--report", str(page)], catch_exceptions=False)
        show(window, page, width=1200, height=800)
        window.save_screenshot(str(arguments.out))
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
