mkdir folder
"$MEGAMLA" run folder
