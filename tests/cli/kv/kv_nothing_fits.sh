"$MEGAMLA" kv --memory 1MiB | grep fits
"$MEGAMLA" kv --memory 60MiB | grep fits
"$MEGAMLA" kv | grep fits
true
