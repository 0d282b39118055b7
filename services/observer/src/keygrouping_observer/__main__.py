"""`python -m keygrouping_observer`."""

from keygrouping_observer.cli import main

raise SystemExit(main())
