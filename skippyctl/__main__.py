"""`python -m skippyctl`."""

from __future__ import annotations

import sys

from skippyctl.main import main


if __name__ == "__main__":
    sys.exit(main())
