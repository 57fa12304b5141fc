"$MEGAMLA" run --comparee reference x
