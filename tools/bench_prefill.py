#!/usr/bin/env python3
"""Put the two ways of prefill beside each other, from result files of `megamla bench --json` with rows of
prefill_paged and prefill_workspace.

    tools/bench_prefill.py RESULTS.json ...                        prints a table
    tools/bench_prefill.py --doc FILE.md RESULTS.json ...          replaces it in the document
    tools/bench_prefill.py --plot PICTURE.svg RESULTS.json ...     draws caches / workspace, above 1 where
                                                                   the workspace is faster; needs gnuplot
"""
import argparse
import json
import os
import re
import subprocess
import sys

from bench_table import markdown, number, origin

MARKS = "<!-- prefill table: begin -->", "<!-- prefill table: end -->"
OPS = ("prefill_paged", "prefill_workspace")
COLOURS = ("#0060b0", "#d08000", "#008050", "#b02030", "#7030a0", "#606060")
WIDTH, HEIGHT = 1080, 660


def load(names):
    """(heads, context, tokens) -> {op: us}, of shapes that both ways have; and the files' results."""
    results, times = [], {}
    for name in names:
        with open(name, encoding="utf-8") as f:
            results.append(json.load(f))
        for r in results[-1]["rows"]:
            if r["op"] in OPS and r["fused_us"]:
                times.setdefault((r["heads"], r["context"], r["tokens"]), {})[r["op"]] = r["fused_us"]
    return {k: v for k, v in times.items() if len(v) == len(OPS)}, results


def values(times, i):
    return list(dict.fromkeys(key[i] for key in times))


def table(times, results, names):
    tokens = sorted(values(times, 2))
    header = ["heads", "context"] + [f"{n:,} tokens" for n in tokens]
    lines = []
    for heads in values(times, 0):
        for context in sorted(values(times, 1)):
            cells = []
            for n in tokens:
                pair = times.get((heads, context, n))
                cells.append("-" if pair is None else
                             f"{number(pair[OPS[0]])} / {number(pair[OPS[1]])} "
                             f"({pair[OPS[0]] / pair[OPS[1]]:.2f})")
            lines.append([str(heads), f"{context:,}"] + cells)
    first = results[0]
    head = [f"{first['device']}, driver {first['driver']}, CUDA {first['cuda']}:"]
    head += [f"- {origin(result, os.path.relpath(name))}" for result, name in zip(results, names)]
    return "\n".join(head + [""] + markdown(header, lines, last_is_text=False))


def script(times, results):
    heads, tokens = values(times, 0), sorted(values(times, 2))
    columns = min(2, len(heads))
    rows = -(-len(heads) // columns)
    title = f"{results[0]['device']}: prefill of one request, time from the caches / time by the workspace"
    out = [
        f"set terminal svg noenhanced rounded font 'sans-serif,12' background 'white' size "
        f"{WIDTH * columns // 2},{HEIGHT * rows // 2}",
        f"set multiplot layout {rows},{columns} title '{title}'",
        "set lmargin 8; set rmargin 2; set tmargin 3; set bmargin 4",
        "set logscale x 2; set grid lc rgb '#d8d8d8'; set yrange [0:1.3]; set ytics 0.2",
        "set key right top reverse Left samplen 2 spacing 1.1",
        "set xlabel 'tokens, and records, of the request'; set ylabel 'above 1: workspace faster'",
        "set xtics (" + ", ".join(f"'{c // 1024}k' {c}" for c in sorted(values(times, 1))) + ")",
    ]
    for h in heads:
        for n in tokens:
            points = sorted((c, v[OPS[0]] / v[OPS[1]]) for (x, c, t), v in times.items()
                            if (x, t) == (h, n))
            out += [f"$h{h}t{n} << end_of_data", *(f"{c} {y:.6g}" for c, y in points), "end_of_data"]
        lines = ["1 with lines lw 1.5 dt 2 lc rgb '#303030' notitle"]
        lines += [f"$h{h}t{n} with linespoints lw 2 pt 7 ps 0.5 lc rgb '{COLOURS[i % len(COLOURS)]}' "
                  f"title '{n} tokens a call'" for i, n in enumerate(tokens)]
        out += [f"set title '{h} heads'", "plot " + ", ".join(lines)]
    return "\n".join(out + ["unset multiplot"]) + "\n"


def draw(text, path):
    """None, or what went wrong."""
    try:
        done = subprocess.run(["gnuplot", "-d"], input=text, capture_output=True, text=True)
    except FileNotFoundError:
        return "gnuplot is not installed"
    if done.returncode != 0 or done.stderr:
        return f"gnuplot failed: {done.stderr.strip()}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(re.sub(r"<g [^>]*>\n</g>\n", "", done.stdout))  # gnuplot's empty groups
    return None


def replace(path, text):
    """None, or what went wrong."""
    with open(path, encoding="utf-8") as f:
        document = f.read()
    before, begin, rest = document.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        return f"{path}: the marker lines are missing"
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{before}{begin}\n{text}\n{end}{after}")
    return None


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doc")
    parser.add_argument("--plot")
    parser.add_argument("results", nargs="+")
    options = parser.parse_args(argv[1:])
    times, results = load(options.results)
    if not times:
        print("no shape of prefill was measured both ways", file=sys.stderr)
        return 1
    text = table(times, results, options.results)
    problems = [replace(options.doc, text)] if options.doc else []
    problems += [draw(script(times, results), options.plot)] if options.plot else []
    if not options.doc and not options.plot:
        print(text)
    for problem in filter(None, problems):
        print(problem, file=sys.stderr)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
