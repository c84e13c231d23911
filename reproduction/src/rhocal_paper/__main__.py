"""``python -m rhocal_paper``."""

from rhocal_paper.cli import main

if __name__ == "__main__":
    main()
