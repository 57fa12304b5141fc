#!/usr/bin/env python3
"""Draw attention's times from a result file of `megamla bench --json`, without measuring anything.

    tools/bench_plot.py bench/results/NAME.json PICTURE.svg [FORMATS]

A panel for every number of heads, both axes logarithmic: microseconds of the fused call, of the chain
of separate steps and of the floor against the tokens of a call; of a run on a GPU with full lists, also
the FlashMLA chain of bench/. FORMATS is 528+288 when it is not given. Needs gnuplot.
"""
import json
import re
import subprocess
import sys

from bench_table import FLASHMLA, flashmla_us, scenario

WIDTH, PANEL_HEIGHT, COLUMNS = 1080, 330, 3
MEASURED = {  # field of a row -> style, title
    "fused_us": ("linespoints lw 2.5 pt 7 ps 0.55 lc rgb '#0060b0'", "fused call"),
    "chain_us": ("linespoints lw 1.5 pt 9 ps 0.5 lc rgb '#d08000'", "chain of separate steps"),
    "floor_us": ("lines lw 1.5 dt 2 lc rgb '#303030'", "floor"),
}
BASELINE = ("linespoints lw 1.5 pt 5 ps 0.4 lc rgb '#b02030'", "FlashMLA chain")
PADDED = ("linespoints lw 1.2 dt 3 pt 4 ps 0.4 lc rgb '#b02030'", "FlashMLA chain, 64 heads")


def lines_of(result, rows):
    """(style and title, [(tokens, microseconds)]) for every line that has a point."""
    lines = [(look, [(r["tokens"], r[field]) for r in rows if r[field]])
             for field, look in MEASURED.items()]
    if result["cuda"]:
        tokens = [r["tokens"] for r in rows]
        every = [flashmla_us(result, {**rows[0], "tokens": n}) + (n,)
                 for n in range(min(tokens), max(tokens) + 1)]
        lines.append((PADDED if every[0][1] else BASELINE,
                      [(n, us) for us, _, n in every if us is not None]))
    return [(look, sorted(points)) for look, points in lines if points]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def script(result, formats):
    """What gnuplot is given; None when there is nothing to draw."""
    rows = [r for r in result["rows"]
            if r["op"].startswith("attend_") and r["formats"] == formats and r["fused_us"]]
    heads = sorted({r["heads"] for r in rows}, reverse=True)
    if not heads:
        return None
    lines = {h: lines_of(result, [r for r in rows if r["heads"] == h]) for h in heads}
    looks = [look for look in (*MEASURED.values(), BASELINE, PADDED)
             if any(look == drawn for h in heads for drawn, _ in lines[h])]
    times = [us for h in heads for _, points in lines[h] for _, us in points]
    tokens = [r["tokens"] for r in rows]
    columns = min(COLUMNS, len(heads) + 1)
    panel_rows = -(-(len(heads) + 1) // columns)
    title = [result["device"], f"{rows[0]['op']} {formats}"] + (scenario(result) or ["full lists"])
    title += ["batch-invariant"] if result.get("batch_invariant") else []
    out = [  # margins in characters: every panel has the same
        f"set terminal svg noenhanced rounded font 'sans-serif,12' background 'white' size "
        f"{WIDTH * columns // COLUMNS},{panel_rows * PANEL_HEIGHT}",
        f"set multiplot layout {panel_rows},{columns} title {quoted(', '.join(title))}",
        "set lmargin 8; set rmargin 2; set tmargin 3; set bmargin 4",
        "set logscale x 2; set logscale y 10; set grid lc rgb '#d8d8d8'; set key off",
        f"set xrange [{min(tokens) / 1.3}:{max(tokens) * 1.3}]; set xtics 1,4; unset mxtics",
        f"set yrange [{min(times) / 1.5}:{max(times) * 1.5}]; set format y '%g'",
        "set xlabel 'query tokens of a call'; set ylabel 'microseconds'",
    ]
    for h in heads:
        for i, (_, points) in enumerate(lines[h]):
            out += [f"$heads{h}line{i} << end_of_data", *(f"{n} {us:.6g}" for n, us in points),
                    "end_of_data"]
        out += [f"set title '{h} heads'", "plot " + ", ".join(
            f"$heads{h}line{i} with {style}" for i, ((style, _), _) in enumerate(lines[h]))]
    measured = f"{result['date'][:10]}, commit {result['commit'] or 'unknown'}"
    notes = ["Fused call, chain and floor: one run,", f"{measured}."]
    if BASELINE in looks or PADDED in looks:
        notes += ["FlashMLA chain: 584-byte records,",
                  f"{FLASHMLA['date']}, {FLASHMLA['device']}, not the same run."]
    out += ["unset title; unset border; unset tics; unset grid; unset xlabel; unset ylabel",
            "set key at graph 0, graph 1 left top Left reverse samplen 3 spacing 1.3"]
    out += [f"set label {i + 1} {quoted(note)} at graph 0.02, graph {0.34 - 0.1 * i} font ',11'"
            for i, note in enumerate(notes)]
    out += ["plot " + ", ".join(f"NaN with {style} title {quoted(name)}" for style, name in looks),
            "unset multiplot"]
    return "\n".join(out) + "\n"


def main(argv):
    if len(argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as f:
        result = json.load(f)
    formats = argv[3] if len(argv) == 4 else "528+288"
    text = script(result, formats)
    if text is None:
        print(f"{argv[1]}: no row of attention with {formats} can be drawn", file=sys.stderr)
        return 1
    try:
        done = subprocess.run(["gnuplot", "-d"], input=text, capture_output=True, text=True)
    except FileNotFoundError:
        print("gnuplot is not installed", file=sys.stderr)
        return 1
    if done.returncode != 0 or done.stderr:
        print(f"gnuplot failed: {done.stderr.strip()}", file=sys.stderr)
        return 1
    with open(argv[2], "w", encoding="utf-8") as f:
        f.write(re.sub(r"<g [^>]*>\n</g>\n", "", done.stdout))  # gnuplot's empty groups
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
