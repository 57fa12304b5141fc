# a file size limit stands for a full disk: no partial file, no temporary file, the old one kept
echo old >out.safetensors
(
    trap '' XFSZ
    ulimit -f 8
    "$MEGAMLA" run "$SRC/examples/captures/kv_gather_v4.safetensors" -o out.safetensors
)
echo "status $?"
cat ./*
