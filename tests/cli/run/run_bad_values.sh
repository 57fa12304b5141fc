for option in --threads=0 --threads=x --threads=5000 --repeat=0 --repeat=1001 --device=tpu \
    --device=cuda: --device=cuda:x --device=cuda:-1; do
    "$MEGAMLA" run "$SRC/examples/mixed_batch.safetensors" "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done 2>&1 | grep -v '^megamla run: --.* is .*, must be '
