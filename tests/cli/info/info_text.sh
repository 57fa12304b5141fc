"$MEGAMLA" info
