"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --repeat 2 --threads 1 \
    --compare reference --json | python3 -c '
import json, sys
run = json.load(sys.stdin)
assert run["op"] == "attend_paged" and run["device"] == "cpu" and run["threads"] == 1
assert run["elapsed"]["runs"] == 2 and run["elapsed"]["median_us"] > 0
assert set(run["chain"]["steps_us"]) == {"rope_q", "attend", "unrope", "quantise"}
keys = run["attend"]["keys"]
assert run["attend"]["kv_read_bytes"]["as_is"] == 528 * keys["window"] + 288 * keys["compressed"]
assert run["comparison"]["passed"] and run["comparison"]["with"] == "reference"
assert [o["name"] for o in run["comparison"]["outputs"]] == ["out", "out_scale", "lse"]
print("fine")'
