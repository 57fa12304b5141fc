#!/usr/bin/env python3
"""Turn a result file of `megamla bench --json` into the table of docs/performance.md.

    tools/bench_table.py bench/results/NAME.json                        prints it
    tools/bench_table.py bench/results/NAME.json docs/performance.md    replaces it in place

In the document the table stands between the two marker lines below.
"""
import json
import os
import sys

BEGIN, END = "<!-- bench table: begin -->", "<!-- bench table: end -->"
HEADER = ("operation", "formats", "heads", "tokens", "median us", "p10 .. p90", "floor us",
          "chain us", "chain / fused", "GFLOP/s", "share of BLAS", "GB/s", "implementation")


def number(value, digits=3):
    """Three significant digits without an exponent; a dash for what does not apply."""
    if value is None:
        return "-"
    decimals = max(0, digits - len(str(int(value)))) if value >= 1 else digits
    return f"{value:.{decimals}f}"


def ratio(above, below, text):
    return "-" if above is None or not below else text.format(above / below)


def row_cells(row):
    fused, scale = row["fused_us"], 1000
    if fused is None:
        return [row["op"], row["formats"] or "-"] + ["-"] * 10 + [row.get("problem", "")]
    return [
        row["op"], row["formats"] or "-", str(row["heads"] or "-"), str(row["tokens"] or "-"),
        number(fused), f"{number(row['p10_us'])} .. {number(row['p90_us'])}",
        number(row["floor_us"]), number(row["chain_us"]),
        ratio(row["chain_us"], fused, "{:.2f}"),
        number(row["tflops"] and row["tflops"] * scale),
        ratio(row.get("sgemm_us"), fused, "{:.0%}"),
        number(row["tbps"] and row["tbps"] * scale), row["impl"],
    ]


def table(result, name):
    ceilings = result["ceilings"]
    gflops = ceilings.get("sgemm_tflops")
    lines = [
        f"{result['device']}, {result['threads']} threads, {result['date'][:10]}, "
        f"commit {result['commit'] or 'unknown'}; `{result['command']}`; file {name}.",
        f"Ceilings of the same run: read {number(ceilings['read_tbps'] * 1000)} GB/s, copy "
        f"{number(ceilings['copy_tbps'] * 1000)} GB/s, OpenBLAS "
        + (f"{number(gflops * 1000)} GFLOP/s at 64 heads." if gflops else "not installed."),
        "",
        "| " + " | ".join(HEADER) + " |",
        "| --- | --- " + "| ---: " * (len(HEADER) - 3) + "| --- |",
    ]
    lines += ["| " + " | ".join(row_cells(row)) + " |" for row in result["rows"]]
    return "\n".join(lines)


def main(argv):
    if len(argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as f:
        text = table(json.load(f), os.path.relpath(argv[1]))
    if len(argv) == 2:
        print(text)
        return 0
    with open(argv[2], encoding="utf-8") as f:
        document = f.read()
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{argv[2]}: the marker lines are missing", file=sys.stderr)
        return 1
    with open(argv[2], "w", encoding="utf-8") as f:
        f.write(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
