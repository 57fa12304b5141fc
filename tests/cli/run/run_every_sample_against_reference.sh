for capture in "$SRC"/examples/captures/attend_*.safetensors "$SRC"/examples/captures/kv_*; do
    "$MEGAMLA" run "$capture" --repeat 1 --compare reference | grep comparison
done | sort | uniq -c | grep -v PASS
