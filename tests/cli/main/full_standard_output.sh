# what could not be printed is a failure
"$MEGAMLA" kv >/dev/full
