"""`python -m switchyard`."""

from .cli import main

main()
