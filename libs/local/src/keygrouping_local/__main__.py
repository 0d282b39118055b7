"""`python -m keygrouping_local`: the same as `keygrouping-run`."""

from keygrouping_local.cli import main

main()
