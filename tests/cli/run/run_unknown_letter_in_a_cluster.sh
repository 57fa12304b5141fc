"$MEGAMLA" run --json -zz
