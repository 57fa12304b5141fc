#!/usr/bin/env python3
"""check_bench_plot.py SOURCE_DIR - tools/bench_plot.py on saved results, and the picture of
docs/performance.md."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SOURCE = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools"))
import bench_plot  # noqa: E402

problems = []


def expect(is_so, what):
    if not is_so:
        problems.append(what)


def row(heads, tokens, fused, **more):
    return {"op": "attend_paged", "formats": "528+288", "heads": heads, "tokens": tokens,
            "fused_us": fused, "chain_us": 2 * fused if fused else None, "floor_us": 1.0, **more}


RESULT = {"device": "GPU's", "cuda": "13.0", "commit": "abc", "date": "2026-01-02T03:04:05Z",
          "lengths": "full", "batch_invariant": False,
          "rows": [row(64, 16, 20.0), row(64, 1, 10.0), row(8, 1, 7.0), row(8, 16, None),
                   row(8, 4, 98765.0, formats="528+528")]}
text = bench_plot.script(RESULT, "528+288")
expect("$heads64line0 << end_of_data\n1 10\n16 20\nend_of_data" in text, "times, in order of tokens")
expect("$heads64line3 << end_of_data\n1 17.3\n2 17.5\n4 18.2\n8 19.5\n16 23.3\nend" in text,
       "FlashMLA of 64 heads, as far as tokens go")
expect("$heads8line0 << end_of_data\n1 7\nend_of_data" in text, "a wrong row has no point")
expect("98765" not in text, "other formats are not drawn")
expect("'GPU''s, attend_paged 528+288, full lists'" in text, "a quoted title")
expect("logscale x" in text and "logscale y" in text, "both axes are logarithmic")
for more in ({"warm": True}, {"padded_percent": 25}, {"lengths": "100"}, {"cuda": None}):
    other = bench_plot.script({**RESULT, **more}, "528+288")
    expect("17.3" not in other and "FlashMLA" not in other, f"no baseline with {more}")
expect(bench_plot.script(RESULT, "584") is None, "nothing to draw")

# Every saved result can be drawn; none of them needs a device.
for name in sorted((SOURCE / "bench/results").glob("*.json")):
    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "a.svg"
        run = subprocess.run([sys.executable, "-B", SOURCE / "tools/bench_plot.py", name, picture],
                             capture_output=True, text=True)
        if shutil.which("gnuplot"):
            expect(run.returncode == 0 and picture.is_file(), f"{name.name}: {run.stderr}")
        else:
            expect(run.returncode == 1 and "gnuplot is not installed" in run.stderr, run.stderr)

# The picture in the document is of the run in its table.
document = (SOURCE / "docs/performance.md").read_text()
table = document.split("<!-- gpu bench table: begin -->")[1]
shown = re.search(r"!\[[^]]+\]\((\S+\.svg)\)", document)
expect(shown is not None, "the document shows no picture")
if shown:
    words = " ".join(xml.parse(SOURCE / "docs" / shown[1]).getroot().itertext())
    saved = json.loads((SOURCE / re.search(r"file (\S+\.json)", table)[1]).read_text())
    expect(f"{saved['date'][:10]}, commit {saved['commit']}" in words,
           f"docs/{shown[1]} is not of the run in the table: tools/bench_plot.py draws it anew")
    expect("FlashMLA chain" in words and "64 heads" in words, f"docs/{shown[1]} lacks a line")
print("\n".join(problems) or "the pictures are right")
sys.exit(1 if problems else 0)
