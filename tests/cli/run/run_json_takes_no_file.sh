# --json prints; whoever names a file is told how to get one
"$MEGAMLA" run call.safetensors --json out.json
"$MEGAMLA" run --json out.json call.safetensors
"$MEGAMLA" info --json out.json
"$MEGAMLA" kv --json out.json
