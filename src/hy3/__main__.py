"""`hy3` and `python -m hy3`: the command line, started so that Ctrl-C during the imports is quiet too."""

import sys


def main() -> None:
    try:
        from hy3.cli import main as command
    except KeyboardInterrupt:
        print("hy3: interrupted", file=sys.stderr)
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
