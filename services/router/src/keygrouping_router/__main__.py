"""`python -m keygrouping_router`."""

from keygrouping_router.cli import main

main()
