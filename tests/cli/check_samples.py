#!/usr/bin/env python3
"""check_samples.py SOURCE_DIR - tools/make_capture.py --check, where NumPy is there; else 77."""

import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("numpy") is None:
    print("skipped: NumPy is not installed")
    sys.exit(77)
tool = pathlib.Path(sys.argv[1]) / "tools" / "make_capture.py"
sys.exit(subprocess.run([sys.executable, "-B", tool, "--check"]).returncode)
