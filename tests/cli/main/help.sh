"$MEGAMLA" --help
