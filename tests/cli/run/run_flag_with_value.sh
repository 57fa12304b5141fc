"$MEGAMLA" run x --json=1
