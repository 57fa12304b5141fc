"$MEGAMLA" frobnicate
