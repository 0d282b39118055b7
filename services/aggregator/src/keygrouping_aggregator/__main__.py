"""`python -m keygrouping_aggregator`."""

from keygrouping_aggregator.cli import main

raise SystemExit(main())
