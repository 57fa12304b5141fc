"$MEGAMLA" run
