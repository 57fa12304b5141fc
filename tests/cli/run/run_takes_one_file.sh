"$MEGAMLA" run a b
