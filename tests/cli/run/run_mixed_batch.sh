"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --compare reference --repeat 5 | grep -v "^  note "
