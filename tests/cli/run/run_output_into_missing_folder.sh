"$MEGAMLA" run "$SRC/examples/captures/window_list.safetensors" -o no/out
