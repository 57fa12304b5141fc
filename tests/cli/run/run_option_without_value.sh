"$MEGAMLA" run x --output
