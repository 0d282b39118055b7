"""The command as a module: `python -m keygrouping`."""

from keygrouping.cli import main

if __name__ == "__main__":
    main()
