"""`python -m keygrouping_worker`."""

from keygrouping_worker.cli import main

raise SystemExit(main())
