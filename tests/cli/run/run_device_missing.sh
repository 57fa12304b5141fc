# a device this machine does not have is a choice that is not available, as an implementation is
"$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" --device cuda:99
