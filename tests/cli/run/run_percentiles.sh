# percentiles from five runs on; rows that are bf16 are not compared with bf16 rows
for n in 1 4 5; do
    "$MEGAMLA" run "$SRC/examples/captures/attend_rows.safetensors" --repeat "$n" |
        grep -e 'fused call ' -e 'KV read' -A 1 | grep -v -e chain -e '^--'
done
"$MEGAMLA" run "$SRC/examples/captures/window_list.safetensors" --repeat 2 --json |
    grep -e p10 -e p90
