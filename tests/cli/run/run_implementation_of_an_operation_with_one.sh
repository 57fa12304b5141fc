"$MEGAMLA" run "$SRC/examples/captures/window_list.safetensors" --compare reference
