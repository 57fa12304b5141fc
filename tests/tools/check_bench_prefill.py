#!/usr/bin/env python3
"""check_bench_prefill.py SOURCE_DIR - tools/bench_prefill.py on made-up and on saved results, and that the
table and the picture of docs/performance.md are those of the saved ones."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools"))
import bench_prefill  # noqa: E402

problems = []


def expect(is_so, what):
    if not is_so:
        problems.append(what)


def run(*arguments):
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/bench_prefill.py", *arguments],
                          capture_output=True, text=True, cwd=SOURCE)


RESULT = {"device": "GPU", "driver": "1", "cuda": "13.0", "commit": "abc", "command": "c",
          "date": "2026-01-02T03:04:05Z"}
TIMES = {(64, 4096, 1024): {"prefill_paged": 30.0, "prefill_workspace": 20.0},
         (64, 8192, 1024): {"prefill_paged": 31.0, "prefill_workspace": 62.0},
         (64, 8192, 256): {"prefill_paged": 5.0, "prefill_workspace": 10.0}}
text = bench_prefill.table(TIMES, [RESULT], ["a.json"])
expect("| 64 | 4,096 | - | 30.0 / 20.0 (1.50) |" in text, "a row, and a shape that there is not")
expect("| heads | context | 256 tokens | 1,024 tokens |" in text, "columns in order")
text = bench_prefill.script(TIMES, [RESULT])
expect("$h64t1024 << end_of_data\n4096 1.5\n8192 0.5\nend_of_data" in text, "ratios, by context")
expect("'4k' 4096, '8k' 8192" in text, "contexts on the axis")

results = sorted((SOURCE / "bench/results").glob("*prefill*/*.json"))
expect(len(results) == 2, "saved results")
done = run(*results)
document = (SOURCE / "docs/performance.md").read_text()
expect(done.returncode == 0 and done.stdout.strip() in document, "the table in the document is of them")
expect(run(results[0]).returncode == 1, "one way alone is nothing to compare")
expect(run().returncode == 2, "no file is bad usage")
with tempfile.TemporaryDirectory() as folder:
    bare, picture = pathlib.Path(folder) / "a.md", pathlib.Path(folder) / "a.svg"
    bare.write_text("no marks")
    done = run("--doc", bare, *results)
    expect(done.returncode == 1 and "marker lines" in done.stderr and bare.read_text() == "no marks",
           "a document without marks stays as it is")
    done = run("--plot", picture, *results)
    if shutil.which("gnuplot"):
        expect(done.returncode == 0 and picture.is_file(), done.stderr)
    else:
        expect(done.returncode == 1 and "gnuplot is not installed" in done.stderr, done.stderr)
drawn = (SOURCE / "docs/prefill-h200.svg").read_text()
expect(all(re.search(f">{h} heads<", drawn) for h in (8, 16, 64, 128)), "a panel for every number of heads")

for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
