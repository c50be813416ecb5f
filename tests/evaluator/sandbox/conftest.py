"""Leaves out what only root can try."""

from __future__ import annotations

import os

collect_ignore = [] if os.geteuid() == 0 else ["test_as_root.py"]
