"""`python -m keygrouping_load`: the same as `keygrouping-load`."""

from keygrouping_load.cli import main

main()
