"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --impl portable --compare portable --repeat 1 |
    grep -e "fused call  " -e comparison
