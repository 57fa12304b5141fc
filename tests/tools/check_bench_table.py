#!/usr/bin/env python3
"""check_bench_table.py SOURCE_DIR - tools/bench_table.py on results of a CPU and of a GPU."""
import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
TOOL = SOURCE / "tools/bench_table.py"


def row(op, **more):
    base = dict.fromkeys(("heads", "tokens", "window", "compressed", "formats", "out_form",
                          "chain_us", "sgemm_us", "cublas_us", "tflops", "keys"))
    return {**base, "op": op, "impl": "name", "fused_us": 10.0, "p10_us": 9.0, "p90_us": 11.0,
            "floor_us": 5.0, "tbps": 2.0, **more}


ATTEND = {"formats": "528+288", "window": 128, "compressed": 512, "tokens": 1}
GPU = {
    "device": "GPU", "driver": "1.2", "cuda": "13.0", "commit": "abc", "date": "2026-01-02T03:04:05Z",
    "command": "megamla bench", "threads": 2, "lengths": "full", "batch_invariant": False,
    "ceilings": {"bf16_tflops": 800.0, "copy_tbps": 4.0, "read_tbps": 4.0, "sgemm_tflops": None,
                 "empty_node_us": 0.55},
    "rows": [
        row("attend_paged", heads=64, chain_us=20.0, tflops=100.0, **ATTEND),
        row("attend_paged", heads=8, **ATTEND),
        row("attend_paged", heads=128, fused_us=None, problem="wrong", **ATTEND),
        row("project", heads=16, tokens=64, cublas_us=12.0, tflops=50.0),
        row("kv_insert", formats="528", tokens=4096),
        row("host_cost", heads=16, tokens=1, formats="528+288", floor_us=None, fused_us=2.0),
    ],
}
problems = []


def tool(result, *files):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(result, f)
        f.flush()
        return subprocess.run([sys.executable, TOOL, f.name, *files], capture_output=True, text=True)


def expect(text, *lines):
    problems.extend(f"missing: {line}" for line in lines if line not in text)


expect(tool(GPU).stdout,
       "GPU, driver 1.2, CUDA 13.0, 2026-01-02, commit abc;", "empty graph node 0.55 us",
       "**attend_paged, 528+288**, lists of 128 + 512",
       "| 64 | 1 | 10.0 | 9.00 .. 11.0 | 20.0 | 2.00 | 5.00 | 2.00 | 17.3 | 1.73 | 100 | 2.00 | name |",
       "| 8 | 1 | 10.0 | 9.00 .. 11.0 | - | - | 5.00 | 2.00 | > 17.3 | 1.73 | - | 2.00 | name |",
       "| 128 | 1 | " + "- | " * 10 + "wrong |",
       "| project | - | 2 | 64 | 10.0 | 9.00 .. 11.0 | 5.00 | 2.00 | 12.0 | 50.0 | 2.00 | 50% | name |",
       "| kv_insert | 528 | - | 4096 |", "costs the host 2.00 us")
for more, words in (({"lengths": "mixed"}, "Attention: lengths mixed."),
                    ({"padded_percent": 25}, "Attention: 25% of the tokens without keys."),
                    ({"warm": True, "page_tokens": 32}, "Attention: warm, pages of 32."),
                    ({"layers": 43}, "Attention: pages of 43 layers in turn.")):
    other = tool({**GPU, **more}).stdout
    expect(other, words)
    if "17.3" in other:
        problems.append(f"the baseline is not for {words}")
expect(tool({**GPU, "padded_percent": 0, "warm": False, "page_tokens": 64, "layers": 1}).stdout,
       "Attention: full lists, cold.", "17.3")
with tempfile.TemporaryDirectory() as folder:
    names = [str(pathlib.Path(folder) / name) for name in ("a.json", "b.json")]
    pathlib.Path(names[0]).write_text(json.dumps(GPU))
    pathlib.Path(names[1]).write_text(json.dumps({**GPU, "warm": True, "rows": GPU["rows"][:1]}))
    text = subprocess.run([sys.executable, TOOL, "--beside", *names], capture_output=True, text=True)
    expect(text.stdout,
           "| operation | formats | heads | tokens | full lists, cold | warm |",
           "| --- | --- | ---: | ---: | ---: | ---: |",
           "| attend_paged | 528+288 | 64 | 1 | 10.0 (2.00) | 10.0 (2.00) |",
           "| attend_paged | 528+288 | 8 | 1 | 10.0 (2.00) | - |",
           "| attend_paged | 528+288 | 128 | 1 | - | - |")
for name in sorted((SOURCE / "bench/results").glob("*.json")):
    result = json.loads(name.read_text())
    header = "fused us" if result["cuda"] else "median us"
    expect(tool(result).stdout, header)
with tempfile.TemporaryDirectory() as folder:
    # Each kind of result finds its own marks, and nothing else changes.
    document = pathlib.Path(folder) / "performance.md"
    text = (SOURCE / "docs/performance.md").read_text()
    document.write_text(text)
    if tool(GPU, document).returncode != 0:
        problems.append("the marks of a GPU are missing")
    changed = document.read_text()
    mark = "<!-- gpu bench table: "
    if text.split(mark)[0] != changed.split(mark)[0] or text.split(mark)[2] != changed.split(mark)[2]:
        problems.append("text outside the marks changed")
    expect(changed.split(mark)[1], "GPU, driver 1.2")
    document.write_text("no marks")
    if tool(GPU, document).returncode != 1 or document.read_text() != "no marks":
        problems.append("a document without marks must stay")
print("\n".join(problems) or "the tables are right")
sys.exit(1 if problems else 0)
