"$MEGAMLA" kv --context 1000 --window-format v41_fp8 --compressed-format v41_fp4 \
    --index-format index_fp4 --memory 1GiB --json
