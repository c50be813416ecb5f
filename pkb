#!/usr/bin/env python3
"""The command line of ParallelKernelBench: ./pkb --help"""

import sys

if sys.version_info < (3, 11):
    sys.exit(f"pkb needs Python 3.11 or newer; this is {sys.version.split()[0]}.")

from client.cli import main

sys.exit(main())
