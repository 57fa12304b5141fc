"$MEGAMLA" kv --window-format v41_fp4 --compressed-format v4
