# the two totals that are public for this model, and the sum of the parts
"$MEGAMLA" kv --context 131072 --json | python3 -c '
import json, sys
rows = {(r["window_format"], r["compressed_format"], r["index_format"]): r
        for r in json.load(sys.stdin)["rows"]}
print(rows["v41_fp8", "v41_fp8", "index_fp8"]["bytes_per_token"])
print(rows["v41_fp8", "v41_fp4", "index_fp4"]["bytes_per_token"])
for r in rows.values():
    parts = r["window_bytes"] + r["compressed_bytes"] + r["index_bytes"] + r["ring_bytes"]
    assert parts == r["request_bytes"], r
    assert r["tokens_per_gib"] == 2**30 * 131072 // r["request_bytes"], r
    assert r["requests"] == 80 * 2**30 // r["request_bytes"], r
print(len(rows), "rows")'
