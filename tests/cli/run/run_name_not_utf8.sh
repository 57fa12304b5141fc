name=$(printf 'a\377b.safetensors')
cp "$SRC/examples/captures/window_list.safetensors" "$name"
"$MEGAMLA" run "$name" --json --repeat 1 -o "$name.out" | grep -c '"a.*b.safetensors'
