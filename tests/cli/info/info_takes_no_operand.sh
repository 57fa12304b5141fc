"$MEGAMLA" info x
