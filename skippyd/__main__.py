"""`python -m skippyd`."""

from __future__ import annotations

import sys

from skippyd.cli.main import main


sys.exit(main())
