"""`python -m lowsparse`: the command line without the script."""

from .cli import main

main()
