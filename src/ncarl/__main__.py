"""``python -m ncarl`` is the command line, where ``ncarl`` itself is not found."""

from ncarl.cli import main

if __name__ == "__main__":
    main()
