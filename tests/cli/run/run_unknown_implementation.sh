"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --impl fastest
