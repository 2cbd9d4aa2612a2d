"""`python -m voicebench` is the same as `voicebench`."""

import sys

from voicebench.cli import main

if __name__ == "__main__":
    sys.exit(main())
