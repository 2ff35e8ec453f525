"""`python -m divprism` is the command line."""

from divprism.cli import main

main()
