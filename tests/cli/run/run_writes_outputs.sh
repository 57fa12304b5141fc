# every small capture, its outputs read back and, where they are bytes, held against the expected
for capture in "$SRC"/examples/captures/*.safetensors; do
    name=$(basename "$capture" .safetensors)
    "$MEGAMLA" run "$capture" --repeat 1 -o out.safetensors >/dev/null || echo "$name failed"
    python3 "$SRC/tests/cli/compare_outputs.py" out.safetensors \
        "$SRC/tests/golden/captures/$name.expected.safetensors" || echo "$name differs"
done
ls
