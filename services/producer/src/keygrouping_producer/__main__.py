"""`python -m keygrouping_producer`."""

from keygrouping_producer.cli import main

main()
