"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --compare reference | grep -v "^  note "
