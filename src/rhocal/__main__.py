"""``python -m rhocal``: the command line, where no script is on the path."""

from rhocal.cli import main

if __name__ == "__main__":
    main()
