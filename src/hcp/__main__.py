"""`python -m hcp`, for machines where another tool is already called `hcp`."""

from hcp.cli.main import main

if __name__ == "__main__":
    main()
