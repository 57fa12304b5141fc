"$MEGAMLA" kv --contxt 3
