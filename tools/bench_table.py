#!/usr/bin/env python3
"""Turn a result file of `megamla bench --json` into the tables of docs/performance.md.

    tools/bench_table.py bench/results/NAME.json                        prints them
    tools/bench_table.py bench/results/NAME.json docs/performance.md    replaces them in place
    tools/bench_table.py --beside A.json B.json ...                     attention, a column a file

In the document the tables stand between two marker lines, those of a GPU between their own.
"""
import json
import os
import pathlib
import sys

CPU_MARKS = "<!-- bench table: begin -->", "<!-- bench table: end -->"
GPU_MARKS = "<!-- gpu bench table: begin -->", "<!-- gpu bench table: end -->"
HEADER = ("operation", "formats", "heads", "tokens", "median us", "p10 .. p90", "floor us",
          "chain us", "chain / fused", "GFLOP/s", "share of BLAS", "GB/s", "implementation")

# The file says what it is and how it was measured. (operation, heads) -> {tokens: us}; FlashMLA pads
# fewer heads to 64.
FLASHMLA = json.loads((pathlib.Path(__file__).parents[1]
                       / "bench/flashmla-chain-h200-2026-11-29.json").read_text())
FLASHMLA_CHAIN = {(r["op"], r["heads"]): {int(n): us for n, us in r["us"].items()}
                  for r in FLASHMLA["rows"]}


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
        number(fused), spread(row), number(row["floor_us"]), number(row["chain_us"]),
        ratio(row["chain_us"], fused, "{:.2f}"),
        number(row["tflops"] and row["tflops"] * scale),
        ratio(row.get("sgemm_us"), fused, "{:.0%}"),
        number(row["tbps"] and row["tbps"] * scale), row["impl"],
    ]


def spread(row):
    return f"{number(row['p10_us'])} .. {number(row['p90_us'])}"


def markdown(header, lines, n_text=0, last_is_text=True):
    """A table whose first n_text columns and perhaps its last are text, the others numbers."""
    n_numbers = len(header) - n_text - last_is_text
    rule = "| --- " * n_text + "| ---: " * n_numbers + ("| --- |" if last_is_text else "|")
    return ["| " + " | ".join(header) + " |", rule] + ["| " + " | ".join(x) + " |" for x in lines]


def origin(result, name):
    return (f"{result['date'][:10]}, commit {result['commit'] or 'unknown'}; "
            f"`{result['command']}`; file {name}.")


def table(result, name):
    ceilings = result["ceilings"]
    gflops = ceilings.get("sgemm_tflops")
    lines = [
        f"{result['device']}, {result['threads']} threads, {origin(result, name)}",
        f"Ceilings of the same run: read {number(ceilings['read_tbps'] * 1000)} GB/s, copy "
        f"{number(ceilings['copy_tbps'] * 1000)} GB/s, OpenBLAS "
        + (f"{number(gflops * 1000)} GFLOP/s at 64 heads." if gflops else "not installed."),
        "",
    ]
    return "\n".join(lines + markdown(HEADER, [row_cells(r) for r in result["rows"]], 2))


def scenario(result):
    """What of attention's inputs was not as by default: lengths, padding, caches, pages."""
    what = []
    if result.get("lengths", "full") != "full":
        what.append(f"lengths {result['lengths']}")
    if result.get("padded_percent"):
        what.append(f"{result['padded_percent']}% of the tokens without keys")
    if result.get("warm"):
        what.append("warm")
    if result.get("page_tokens", 64) != 64:
        what.append(f"pages of {result['page_tokens']}")
    if result.get("layers", 1) != 1:
        what.append(f"pages of {result['layers']} layers in turn")
    return what


def flashmla_us(result, row):
    """The baseline's time for a row, and whether that is for more heads; None without one."""
    if scenario(result):
        return None, False
    heads = max(row["heads"], FLASHMLA["least_heads"])
    return FLASHMLA_CHAIN.get((row["op"], heads), {}).get(row["tokens"]), heads > row["heads"]


def attend_cells(result, row):
    fused = row["fused_us"]
    if fused is None:
        return [str(row["heads"]), str(row["tokens"])] + ["-"] * 10 + [row.get("problem", "")]
    baseline, is_padded = flashmla_us(result, row)
    return [
        str(row["heads"]), str(row["tokens"]), number(fused), spread(row),
        number(row["chain_us"]), ratio(row["chain_us"], fused, "{:.2f}"),
        number(row["floor_us"]), ratio(fused, row["floor_us"], "{:.2f}"),
        ("> " if is_padded and baseline else "") + number(baseline),
        ratio(baseline, fused, "{:.2f}"), number(row["tflops"]), number(row["tbps"]), row["impl"],
    ]


ATTEND_HEADER = ("heads", "tokens", "fused us", "p10 .. p90", "chain us", "chain / fused",
                 "floor us", "fused / floor", "FlashMLA chain us", "FlashMLA / fused", "TFLOP/s",
                 "TB/s", "implementation")
OTHER_HEADER = ("operation", "formats", "groups", "tokens or rows", "median us", "p10 .. p90",
                "floor us", "median / floor", "cuBLAS us", "TFLOP/s", "TB/s", "share of read",
                "implementation")


def other_cells(result, row):
    fused, groups = row["fused_us"], row["heads"] and row["heads"] // 8
    names = [row["op"], row["formats"] or "-", str(groups or "-"), str(row["tokens"] or "-")]
    if fused is None:
        return names + ["-"] * 8 + [row.get("problem", "")]
    return names + [
        number(fused), spread(row), number(row["floor_us"]),
        ratio(fused, row["floor_us"], "{:.2f}"), number(row["cublas_us"]),
        number(row["tflops"]), number(row["tbps"]),
        ratio(row["tbps"], result["ceilings"]["read_tbps"], "{:.0%}"), row["impl"] or "-",
    ]


def gpu_tables(result, name):
    ceilings, rows = result["ceilings"], result["rows"]
    product = ceilings["bf16_tflops"]
    lines = [
        f"{result['device']}, driver {result['driver']}, CUDA {result['cuda']}, "
        f"{origin(result, name)}",
        f"Ceilings of the same run: read {number(ceilings['read_tbps'])} TB/s, copy "
        f"{number(ceilings['copy_tbps'])} TB/s, empty graph node "
        f"{number(ceilings['empty_node_us'], 2)} us, cuBLAS bf16 "
        + (f"{number(product)} TFLOP/s." if product else "not installed."),
        "Attention: " + ", ".join(scenario(result) or ["full lists, cold"])
        + ("; batch-invariant." if result["batch_invariant"] else "."),
    ]
    attend = [r for r in rows if r["op"].startswith("attend_")]
    panels = list(dict.fromkeys((r["op"], r["formats"]) for r in attend))
    for op, formats in panels:
        keys = next(r for r in attend if (r["op"], r["formats"]) == (op, formats))
        n_keys = " + ".join(str(keys[k]) for k in ("window", "compressed") if keys[k])
        lines += ["", f"**{op}, {formats}**, lists of {n_keys}", ""]
        lines += markdown(ATTEND_HEADER, [attend_cells(result, r) for r in attend
                                          if (r["op"], r["formats"]) == (op, formats)])
    # Prefill has a table of its own (bench_prefill.py).
    others = [r for r in rows if not r["op"].startswith(("attend_", "prefill_"))
              and r["op"] != "host_cost"]
    if others:
        lines += ["", "**The other operations**", ""]
        lines += markdown(OTHER_HEADER, [other_cells(result, r) for r in others], 2)
    for row in rows:
        if row["op"] == "host_cost" and row["fused_us"] is not None:
            lines += ["", f"One call costs the host {number(row['fused_us'])} us "
                          f"({spread(row)}): attend_paged, {row['formats']}, {row['heads']} heads, "
                          f"{row['tokens']} token, outside a graph."]
    return "\n".join(lines)


def beside(results):
    """Attention of several files, a row a shape: microseconds, and times the floor in brackets."""
    shapes, cells = [], []
    for result in results:
        rows = [r for r in result["rows"] if r["op"].startswith("attend_")]
        cells.append({(r["op"], r["formats"], r["heads"], r["tokens"]): r for r in rows})
        shapes += [key for key in cells[-1] if key not in shapes]
    header = ["operation", "formats", "heads", "tokens"]
    header += [", ".join(scenario(result) or ["full lists, cold"]) for result in results]
    lines = []
    for key in shapes:
        line = [str(word) for word in key]
        for column in cells:
            row = column.get(key)
            fused = row and row["fused_us"]
            line.append(f"{number(fused)} ({ratio(fused, row['floor_us'], '{:.2f}')})" if fused
                        else "-")
        lines.append(line)
    return "\n".join(markdown(header, lines, 2, last_is_text=False))


def main(argv):
    if len(argv) > 2 and argv[1] == "--beside":
        results = []
        for name in argv[2:]:
            with open(name, encoding="utf-8") as f:
                results.append(json.load(f))
        print(beside(results))
        return 0
    if len(argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as f:
        result = json.load(f)
    is_gpu = result["cuda"] is not None
    text = (gpu_tables if is_gpu else table)(result, os.path.relpath(argv[1]))
    if len(argv) == 2:
        print(text)
        return 0
    begin_mark, end_mark = GPU_MARKS if is_gpu else CPU_MARKS
    with open(argv[2], encoding="utf-8") as f:
        document = f.read()
    before, begin, rest = document.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        print(f"{argv[2]}: the marker lines are missing", file=sys.stderr)
        return 1
    with open(argv[2], "w", encoding="utf-8") as f:
        f.write(f"{before}{begin_mark}\n{text}\n{end_mark}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
