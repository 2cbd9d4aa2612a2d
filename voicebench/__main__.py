"""`python -m voicebench` is the same as `voicebench`."""

import sys

from voicebench.cli import entry

if __name__ == "__main__":
    sys.exit(entry())
