"""The code of docs/python.md runs as it stands, block after block."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_examples_of_the_page_run(torch, tmp_path):
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(blocks) == 6
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = re.search(r"^It prints `([^`]+)`", text, flags=re.M).group(1)
    assert done.stdout.splitlines()[0] == shown
    assert (tmp_path / "call.safetensors").exists()


def test_every_public_name_is_on_the_page():
    import megamla

    text = PAGE.read_text()
    types = {"AttendResult", "ImageReach", "Implementation", "PlanCounts", "PrefillChunk", "Support",
             "TokenList"}
    assert [name for name in megamla.__all__ if name not in text and name not in types] == []
